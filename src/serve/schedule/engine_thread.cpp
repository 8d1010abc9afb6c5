// SPDX-License-Identifier: MIT
#include "serve/schedule/engine_thread.h"

#include "core/log.h"

namespace nibble {

namespace {

constexpr const char* kEnding = "the server is ending: what was said until now is all";

}  // namespace

EngineThread::EngineThread(Scheduler& schedule, RequestQueue& queue)
    : schedule_(schedule), queue_(queue), thread_([this] { run(); }) {}

void EngineThread::run() {
  while (!stop_) {
    bool busy = true;
    try {
      busy = schedule_.tick();
    } catch (const std::exception& e) {
      // No one request is to blame (memory, say): all are told, and the server goes on.
      log_warning("the engine failed, and every request with it: {}", e.what());
      schedule_.fail(e.what());
    }
    queue_.deal();
    if (!busy) schedule_.wait(std::chrono::milliseconds(50));
  }
  schedule_.end_all(kEnding);
}

EngineThread::~EngineThread() {
  queue_.end(kEnding);
  stop_ = true;
  thread_.join();
}

}  // namespace nibble
