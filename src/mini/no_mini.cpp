// SPDX-License-Identifier: MIT
// What a build without the mini model's grammar says (-DNIBBLE_MINI=OFF).
#include "core/error.h"
#include "mini/corpus.h"
#include "mini/probes.h"

namespace nibble {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw_usage(
      "{} is made from the mini model's grammar, which this build leaves out; build nibble with "
      "-DNIBBLE_MINI=ON, or bring your own files",
      what);
}

}  // namespace

CorpusCounts write_corpus(const std::filesystem::path&, const CorpusOptions&, ThreadPool&) {
  refuse("data corpus");
}
std::string make_identity_set(const IdentitySetOptions&, bool) { refuse("data identity"); }
std::string make_probes(const ProbeOptions&) { refuse("data probes"); }

}  // namespace nibble
