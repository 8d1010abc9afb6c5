// SPDX-License-Identifier: MIT
#include "train/param_groups.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"

namespace nibble {
namespace {

// A pattern is dot-separated parts that must occur one after the other among the parts of the
// name: "layers.3", "mlp", "q_proj", "lm_head". A part of the form A-B is a range of layers.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

bool part_matches(std::string_view pattern, std::string_view part) {
  if (pattern == part) return true;
  const size_t dash = pattern.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = whole_number(pattern.substr(0, dash));
  const auto last = whole_number(pattern.substr(dash + 1)), number = whole_number(part);
  return first && last && number && *first <= *number && *number <= *last;
}

bool matches(std::string_view pattern, std::string_view name) {
  const auto wanted = parts_of(pattern), parts = parts_of(name);
  for (size_t at = 0; at + wanted.size() <= parts.size(); ++at) {
    bool all = true;
    for (size_t i = 0; i < wanted.size(); ++i) all = all && part_matches(wanted[i], parts[at + i]);
    if (all) return true;
  }
  return false;
}

}  // namespace

std::vector<LrScale> parse_lr_scales(std::string_view text) {
  std::vector<LrScale> scales;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const size_t equals = item.find('=');
    double value = 0;
    const std::string_view number = equals == item.npos ? "" : item.substr(equals + 1);
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (equals == item.npos || equals == 0 || error != std::errc() ||
        stop != number.data() + number.size() || !(value >= 0) || !std::isfinite(value)) {
      throw_usage("--lr-scale: '{}' is not NAME=FACTOR, e.g. lm_head=5 or layers.0-7=0.1", item);
    }
    scales.push_back({std::string(item.substr(0, equals)), value});
    begin = end + 1;
  }
  return scales;
}

int64_t layer_of(const ParamSpec& p, const Config& c) {
  if (p.layer >= 0) return p.layer;
  return p.slot == ParamSlot::embed ? -1 : c.L;
}

ParamGroups make_param_groups(const Config& c, const TrainSettings& s) {
  ParamGroups g;
  g.table = parameter_table(c);
  g.scale.assign(g.table.size(), 1.0);
  // As many as there are, or more, is everything: norms, embedding and head, too.
  if (s.train_last_layers > 0 && s.train_last_layers < c.L) {
    for (size_t i = 0; i < g.table.size(); ++i) {
      const ParamSpec& p = g.table[i];
      const bool wanted = p.is_linear() && p.layer >= c.L - s.train_last_layers;
      g.scale[i] = wanted ? 1.0 : 0.0;
    }
  }
  for (const LrScale& rule : s.lr_scale) {
    bool found = false, reachable = false;
    for (size_t i = 0; i < g.table.size(); ++i) {
      const ParamSpec& p = g.table[i];
      if (!matches(rule.pattern, p.name)) continue;
      if (p.slot == ParamSlot::head && c.tied) {
        throw_usage(
            "--lr-scale {}: the head of this model is its embedding; name embed_tokens, or train "
            "two with --untie",
            rule.pattern);
      }
      if (p.slot == ParamSlot::head && s.loss == LossKind::scalar && rule.scale != 0) {
        throw_usage("--lr-scale {}: the scalar loss does not use the head, so it does not learn",
                    rule.pattern);
      }
      found = true;
      reachable = reachable || g.scale[i] != 0;
      g.scale[i] *= rule.scale;
    }
    if (found && !reachable && rule.scale != 0) {
      throw_usage(
          "--lr-scale {}: all of it is frozen already, and a factor does not change that; instead "
          "of "
          "--train-last-layers, freeze the rest by name: layers.0-{}=0, embed_tokens=0, norm=0",
          rule.pattern, std::max<int64_t>(0, c.L - 1 - std::max<int64_t>(1, s.train_last_layers)));
    }
    if (!found) {
      throw_usage(
          "--lr-scale {}: no parameter has that name; parts of names count: embed_tokens, lm_head, "
          "norm, layers.3, layers.0-7, self_attn, q_proj, mlp.down_proj, ...",
          rule.pattern);
    }
  }
  for (size_t i = 0; i < g.table.size(); ++i) {
    // A tied head is the embedding's, and the scalar loss has no use for any head.
    const bool head = g.table[i].slot == ParamSlot::head;
    const bool without = head && (c.tied || s.loss == LossKind::scalar);
    g.trained.push_back(uint8_t(g.scale[i] != 0 && !without));
  }
  if (g.trained_tensors() == 0) throw_usage("every parameter is frozen: there is nothing to train");
  return g;
}

int64_t ParamGroups::trained_parameters() const {
  int64_t n = 0;
  for (size_t i = 0; i < table.size(); ++i) n += trained[i] ? table[i].numel() : 0;
  return n;
}

int64_t ParamGroups::trained_tensors() const {
  int64_t n = 0;
  for (const uint8_t t : trained) n += t;
  return n;
}

std::string ParamGroups::describe() const {
  bool all = true;  // but the head of a tied model, whose rate is nobody's
  for (size_t i = 0; i < table.size(); ++i) {
    all = all && (trained[i] || (table[i].slot == ParamSlot::head && scale[i] != 0));
  }
  return fmt::format("{}: {} tensors, {:.4g} M parameters",
                     all ? "full-parameter" : "part of the parameters", trained_tensors(),
                     double(trained_parameters()) * 1e-6);
}

}  // namespace nibble
