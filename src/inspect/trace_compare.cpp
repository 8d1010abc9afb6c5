// SPDX-License-Identifier: MIT
#include "inspect/trace_compare.h"

#include <fmt/format.h>

#include <ostream>

#include "formats/safetensors.h"
#include "inspect/compare.h"

namespace nibble {
namespace {

std::string special_text(const Difference& d) {
  if (d.a.nan + d.a.inf + d.b.nan + d.b.inf == 0) return "";
  return fmt::format("  NaN {}/{} Inf {}/{}", d.a.nan, d.b.nan, d.a.inf, d.b.inf);
}

}  // namespace

bool print_comparison(const std::filesystem::path& a, const std::filesystem::path& b,
                      double tolerance, std::ostream& out) {
  const auto source_a = open_safetensors(a), source_b = open_safetensors(b);
  const std::vector<Difference> all = compare_recordings(*source_a, *source_b);
  size_t width = 6;
  for (const Difference& d : all) width = std::max(width, d.name.size());
  out << fmt::format("{:<{}}  {:>10}  {:>10}  {:>10}\n", "tensor", width, "rel L2", "max abs",
                     "1 - cosine");
  int64_t over = 0;
  for (const Difference& d : all) {
    const bool bad = d.over(tolerance);
    over += bad;
    const std::string figures =
        d.problem.empty() ? fmt::format("{:>10.3g}  {:>10.3g}  {:>10.3g}{}", d.relative_l2,
                                        d.max_abs, 1 - d.cosine, special_text(d))
                          : d.problem;
    out << fmt::format("{:<{}}  {}{}\n", d.name, width, figures, bad ? "  *" : "");
  }
  const Difference* first = first_over(all, tolerance);
  if (!first) {
    out << fmt::format("PASS {} tensors within {:g}\n", all.size(), tolerance);
    return true;
  }
  out << fmt::format("FAIL {} of {} tensors over {:g}; the first is {}: {}\n", over, all.size(),
                     tolerance, first->name,
                     first->problem.empty()
                         ? fmt::format("relative L2 {:.3g}, max abs {:.3g} at element {}",
                                       first->relative_l2, first->max_abs, first->max_at)
                         : first->problem);
  return false;
}

}  // namespace nibble
