// SPDX-License-Identifier: MIT
#include "core/durable/memory_reserve.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>

#include "core/durable/last_words.h"
#include "core/error.h"

namespace nibble {
namespace {

// A command's JSON is a few ten KiB; so are its paths and messages.
constexpr size_t kBytes = 128 << 10;

std::atomic<void*> g_for_work{nullptr}, g_for_unwinding{nullptr};

bool give(std::atomic<void*>& reserve) {
  void* const kept = reserve.exchange(nullptr);
  std::free(kept);
  return kept != nullptr;
}

// A request that was merely too large leaves enough to be kept back for the next one.
void take(std::atomic<void*>& reserve) {
  void* nothing = nullptr;
  void* const kept = std::malloc(kBytes);
  if (!reserve.compare_exchange_strong(nothing, kept)) std::free(kept);
}

void memory_is_short() {
  if (give(g_for_work)) return;
  if (std::uncaught_exceptions() > 0 && give(g_for_unwinding)) return;
  take(g_for_work);
  throw std::bad_alloc();
}

std::terminate_handler g_terminate_before;

// An exception where none may pass.
[[noreturn]] void cannot_go_on() {
  try {
    if (const std::exception_ptr e = std::current_exception()) std::rethrow_exception(e);
  } catch (const std::bad_alloc&) {
    write_last_words();
    constexpr char kText[] = "nibble: error: out of memory, also for what has to be cleaned up\n";
    if (::write(STDERR_FILENO, kText, sizeof kText - 1) < 0) ::_exit(int(ExitCode::device));
    ::_exit(int(ExitCode::device));
  } catch (...) {  // as it was before
  }
  g_terminate_before();
  std::abort();
}

}  // namespace

void spend_memory_reserve() noexcept {
  give(g_for_work);
  give(g_for_unwinding);
}

void keep_memory_reserve() {
  take(g_for_work);
  take(g_for_unwinding);
  std::set_new_handler(memory_is_short);
  g_terminate_before = std::set_terminate(cannot_go_on);
}

}  // namespace nibble
