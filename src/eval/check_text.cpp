// SPDX-License-Identifier: MIT
// check --text: the mean loss a token on texts, as the model would run here; with --against also
// how far its predictions are from those of another model.
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "eval/check_parts.h"
#include "eval/damage/text_compare.h"

namespace nibble {
namespace {

constexpr int64_t kContextTokens = 24;  // shown before a token that moved

std::string token_text(const Runtime& r, int32_t id) {
  return r.tokenizer ? r.tokenizer->decode(std::span(&id, 1)) : fmt::format("{}", id);
}

std::string context_of(const Runtime& r, const std::vector<int64_t>& window, int64_t at) {
  const auto begin = window.begin() + std::max<int64_t>(0, at - kContextTokens);
  const std::vector<int32_t> ids(begin, window.begin() + at);
  return reply_text(r, ids);
}

nlohmann::json moved_json(const Runtime& r, const TextWindows& w, const MovedToken& m) {
  const std::vector<int64_t>& window = w.ids[size_t(m.window)];
  return {{"window", m.window},
          {"at", m.at},
          {"context", context_of(r, window, m.at)},
          {"token", token_text(r, int32_t(window[size_t(m.at)]))},
          {"divergence", json_number(m.divergence)},
          {"base_loss", json_number(m.base_loss)},
          {"loss", json_number(m.loss)},
          {"base_top", token_text(r, m.base_top)},
          {"base_top_probability", json_number(m.base_top_probability)},
          {"top", token_text(r, m.top)},
          {"top_probability", json_number(m.top_probability)}};
}

void note_moved(const nlohmann::json& moved, CheckReport& report) {
  if (moved.empty()) return;
  report.note("  what moved most: nats, context, what follows there; most likely before -> now");
  for (const nlohmann::json& m : moved) {
    // Quoted, so that spaces and line ends show.
    const auto quoted = [&](const char* key) {
      return m[key].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    report.note(fmt::format("  {:6.3f}  {} {}; {} -> {}", m["divergence"].get<double>(),
                            quoted("context"), quoted("token"), quoted("base_top"), quoted("top")));
  }
}

nlohmann::json loss_json(const TextWindows& w, const TextLoss& loss) {
  return {{"file", w.name},
          {"loss", json_number(loss.loss)},
          {"standard_error", json_number(loss.standard_error)},
          {"tokens", loss.tokens},
          {"windows", loss.windows}};
}

std::vector<std::string> missed(const CheckOptions& o, const TextComparison& c) {
  std::vector<std::string> out;
  const double rise = 100 * c.change.loss / c.base.loss;
  if (o.max_divergence && !(c.divergence.loss <= *o.max_divergence)) {
    out.push_back(fmt::format("the divergence is above {:g}", *o.max_divergence));
  }
  if (o.min_agreement && !(100 * c.agreement >= *o.min_agreement)) {
    out.push_back(fmt::format("the agreement is below {:g} %", *o.min_agreement));
  }
  if (o.max_loss_rise && !(rise <= *o.max_loss_rise)) {
    out.push_back(fmt::format("the loss rose by more than {:g} %", *o.max_loss_rise));
  }
  return out;
}

void compare(const CheckOptions& o, Replicas replicas, Replicas base, const TextWindows& w,
             CheckReport& report) {
  const Runtime& r = replicas.front();
  const TextComparison c =
      compare_on_text(text_readers(o, base), text_readers(o, replicas), w, o.moved);
  nlohmann::json j = loss_json(w, c.model);
  j["base_loss"] = json_number(c.base.loss);
  j["base_standard_error"] = json_number(c.base.standard_error);
  j["loss_change"] = json_number(c.change.loss);
  j["loss_change_error"] = json_number(c.change.standard_error);
  j["divergence"] = json_number(c.divergence.loss);
  j["divergence_error"] = json_number(c.divergence.standard_error);
  j["agreement"] = json_number(c.agreement);
  j["moved"] = nlohmann::json::array();
  for (const MovedToken& m : c.moved) j["moved"].push_back(moved_json(r, w, m));
  j["below_threshold"] = missed(o, c);
  note_moved(j["moved"], report);
  std::string figure = fmt::format(
      "{}: KL {:.5f} +- {:.5f} nats a token, top-1 agreement {:.2f} %; loss {:.5f} +- {:.5f}, "
      "base {:.5f} ({:+.2f} %); {} tokens, {} windows",
      w.name, c.divergence.loss, c.divergence.standard_error, 100 * c.agreement, c.model.loss,
      c.model.standard_error, c.base.loss, 100 * c.change.loss / c.base.loss, c.model.tokens,
      c.model.windows.size());
  for (const auto& why : j["below_threshold"]) figure += "; " + why.get<std::string>();
  // Before j is moved from: arguments are evaluated in any order.
  const bool passed = std::isfinite(c.model.loss) && std::isfinite(c.divergence.loss) &&
                      j["below_threshold"].empty();
  report.add("text", passed, figure, std::move(j));
}

}  // namespace

std::vector<TextReader> text_readers(const CheckOptions& o, Replicas replicas) {
  std::vector<TextReader> all;
  for (const Runtime& r : replicas) {
    all.push_back(
        {*r.backend, r.model, {r.compute, r.engine_options(o.cache).cache, r.activations}});
  }
  return all;
}

void check_text(const CheckOptions& o, Replicas replicas, Replicas base, CheckReport& report) {
  const Runtime& r = replicas.front();
  const auto tokenizer = [](const Runtime& m) { return m.tokenizer ? &*m.tokenizer : nullptr; };
  for (const std::string& file : o.texts) {
    const auto all = read_text_windows(file, tokenizer(r), o.text_window, o.text_windows);
    if (!base.empty() && base[0].tokenizer) {
      const auto theirs =
          read_text_windows(file, tokenizer(base[0]), o.text_window, o.text_windows);
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].ids != theirs[i].ids) {
          throw_usage(
              "{}: the tokenizers of the model and of --against make different tokens of it", file);
        }
      }
    }
    for (const TextWindows& w : all) {
      if (!base.empty()) {
        compare(o, replicas, base, w, report);
        continue;
      }
      const std::vector<TextReader> readers = text_readers(o, replicas);
      const TextLoss loss = text_loss(readers, w);
      report.add(
          "text", std::isfinite(loss.loss),
          fmt::format("{}: loss {:.5f} +- {:.5f} nats a token, perplexity {:.3f} ({} tokens, "
                      "{} windows, cache {})",
                      w.name, loss.loss, loss.standard_error, std::exp(loss.loss), loss.tokens,
                      loss.windows.size(), dtype_name(readers[0].options.cache)),
          loss_json(w, loss));
    }
  }
}

}  // namespace nibble
