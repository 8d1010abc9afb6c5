// SPDX-License-Identifier: MIT
#include "runtime/saved_chat.h"

#include <fmt/ranges.h>

#include "core/json.h"
#include "formats/safetensors.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

constexpr const char* kKind = "nibble_chat";  // of the metadata; its value is the version
constexpr const char* kChatVersion = "1";
constexpr const char* kTokens = "tokens";

std::string hash_of(const std::vector<InputFile>& files) {
  QuickHash hash;
  std::vector<std::byte> part(size_t(4) << 20);
  for (const InputFile& f : files) {
    for (uint64_t at = 0; at < f.size(); at += part.size()) {
      const auto n = std::span(part).first(size_t(std::min<uint64_t>(part.size(), f.size() - at)));
      f.read(at, n);
      hash.update(n);
    }
  }
  return hash.finish();
}

// Every token's text by its number: what a tokenizer is, apart from how it cuts.
std::string hash_of(const Tokenizer& tokenizer, int64_t ids) {
  QuickHash hash;
  for (int64_t id = 0; id < ids; ++id) {
    hash.update(tokenizer.decode(std::vector<int32_t>{int32_t(id)}, DecodeSpecial::keep));
    hash.update("\n");
  }
  return hash.finish();
}

std::string recipe_name(const std::optional<Recipe>& r) {
  return r ? (*r == Recipe::nvfp4 ? "nvfp4" : "dense") : "as stored";
}

ordered_json messages_json(const std::vector<Message>& messages) {
  ordered_json list = ordered_json::array();
  for (const Message& m : messages) {
    list.push_back({{"role", role_name(m.role)}, {"content", m.content}});
  }
  return list;
}

// What a place stands for is the beginning of what the last one stands for, or not known (0).
ordered_json place_json(const ChatPlace& p, const std::string& said) {
  return {{"messages", p.messages},
          {"said_bytes", said.starts_with(p.said) ? p.said.size() : 0},
          {"said_messages", p.said_messages},
          {"closing_tokens", p.closing_tokens},
          {"pending", p.pending},
          {"cached", p.cached}};
}

ChatPlace read_place(const ordered_json& j, const std::string& said) {
  ChatPlace p;
  p.messages = j.at("messages").get<size_t>();
  p.said = said.substr(0, j.at("said_bytes").get<size_t>());
  p.said_messages = j.at("said_messages").get<size_t>();
  p.closing_tokens = j.at("closing_tokens").get<int64_t>();
  p.pending = j.at("pending").get<std::vector<int32_t>>();
  p.cached = j.at("cached").get<int64_t>();
  return p;
}

void refuse_other(const std::string& file, const char* what, const std::string& saved,
                  const std::string& now, const char* help) {
  if (saved == now) return;
  throw_usage("{} was saved with {} ({}) than this chat has ({}), and its cache would not fit: {}",
              file, what, saved.substr(0, 80), now.substr(0, 80), help);
}

}  // namespace

CacheOrigin cache_origin(const Runtime& rt, const EngineOptions& engine) {
  CacheOrigin o;
  if (!rt.source)
    throw_usage("the weights of this model are in no file: its chats cannot be saved");
  o.weights = hash_of(rt.source->files());
  o.tokenizer = hash_of(rt.require_tokenizer(), rt.model.config.V);
  o.computed = fmt::format("compute {}, activations {}, linear layers {}, head {}",
                           dtype_name(engine.compute), activations_name(engine.activations),
                           recipe_name(rt.load.recipe), recipe_name(rt.load.head_recipe));
  o.cache = dtype_name(engine.cache);
  return o;
}

void save_chat(const std::filesystem::path& file, Existing existing, const CacheOrigin& origin,
               const ChatSession& session, Engine& engine) {
  const ChatPlace& place = session.place();
  engine.truncate(place.cached);  // behind it lies only what was taken back
  const Config& c = engine.config();
  const int64_t n = engine.length();
  std::vector<TensorInfo> tensors;
  if (n > 0) {
    tensors.push_back({kTokens, DType::i32, {n}});
    for (int64_t l = 0; l < c.L; ++l) {
      for (const char* part : {"k", "v"}) {
        tensors.push_back({fmt::format("{}.{}", part, l), engine.options().cache, {n, c.Hkv, c.D}});
      }
    }
  }
  ordered_json before = ordered_json::array();
  for (const ChatPlace& p : session.places_before()) before.push_back(place_json(p, place.said));
  const ordered_json state = {{"messages", messages_json(session.messages())},
                              {"said", place.said},
                              {"place", place_json(place, place.said)},
                              {"before", before}};
  const auto text = state.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  SafetensorsWriter out(file, tensors,
                        {{kKind, kChatVersion},
                         {"weights", origin.weights},
                         {"tokenizer", origin.tokenizer},
                         {"computed", origin.computed},
                         {"cache", origin.cache},
                         {"state", text}},
                        Checksum::quick, existing);
  if (n > 0) {
    out.append(std::as_bytes(std::span(engine.tokens())));
    engine.read_cache([&](std::span<const std::byte> bytes) { out.append(bytes); });
  }
  out.finish();
}

void load_chat(const std::filesystem::path& file, const CacheOrigin& origin, ChatSession& session,
               Engine& engine) {
  const std::string name = file.string();
  const auto source = open_safetensors(file);
  const auto& meta = source->metadata();
  if (!meta.contains(kKind)) {
    throw_format(
        "{} is no saved chat (a file that /save wrote), but has {} tensors of something "
        "else",
        name, source->tensors().size());
  }
  const auto saved = [&](const char* key) {
    const auto found = meta.find(key);
    return found == meta.end() ? std::string("nothing said") : found->second;
  };
  if (saved(kKind) != kChatVersion) {
    throw_format("{} is a saved chat of version {}, this program reads version {}", name,
                 saved(kKind), kChatVersion);
  }
  refuse_other(name, "another model", saved("weights"), origin.weights,
               "start nibble chat with the --model it was saved with");
  refuse_other(name, "another tokenizer", saved("tokenizer"), origin.tokenizer,
               "give the --tokenizer it was saved with");
  refuse_other(name, "another way of computing", saved("computed"), origin.computed,
               "give the same --compute-dtype, --activations and --recipe");
  refuse_other(name, "another type of cache", saved("cache"), origin.cache,
               "give the same --kv-dtype");
  if (const std::string wrong = find_damage(file); !wrong.empty()) {
    throw_format("{} cannot be loaded: {}", name, wrong);
  }
  std::vector<Message> messages;
  ChatPlace place;
  std::vector<ChatPlace> before;
  try {
    const auto state = parse_json<ordered_json>(saved("state"));
    for (const auto& m : state.at("messages")) {
      messages.push_back(
          {role_from_name(m.at("role").get<std::string>()), m.at("content").get<std::string>()});
    }
    const auto said = state.at("said").get<std::string>();
    place = read_place(state.at("place"), said);
    for (const auto& p : state.at("before")) before.push_back(read_place(p, said));
  } catch (const std::exception& e) {
    throw_format("{}: not the state of a chat: {}", name, e.what());
  }
  const TensorInfo* const tokens = source->find(kTokens);
  if (tokens == nullptr) {
    engine.reset();
  } else {
    std::vector<int32_t> ids(size_t(tokens->numel()));
    if (tokens->dtype != DType::i32) throw_format("{}: its tokens are no i32", name);
    if (int64_t(ids.size()) > engine.options().context) {
      throw_usage(
          "{} has a conversation of {} tokens, this chat has a context of {}: start with "
          "--context {} or more",
          name, ids.size(), engine.options().context, ids.size());
    }
    source->read(*tokens, 0, std::as_writable_bytes(std::span(ids)));
    const Config& c = engine.config();
    const std::vector<int64_t> shape = {int64_t(ids.size()), c.Hkv, c.D};
    std::vector<const TensorInfo*> parts;
    for (int64_t l = 0; l < c.L; ++l) {
      for (const char* part : {"k", "v"}) {
        parts.push_back(&source->at(fmt::format("{}.{}", part, l)));
        if (parts.back()->shape != shape || parts.back()->dtype != engine.options().cache) {
          throw_format("{}: {} is {}, expected {}[{}]", name, parts.back()->name,
                       parts.back()->describe(), origin.cache, fmt::join(shape, ", "));
        }
      }
    }
    size_t next = 0;
    try {
      engine.write_cache(
          ids, [&](std::span<std::byte> bytes) { source->read(*parts[next++], 0, bytes); });
    } catch (...) {  // the conversation stays, its cache has to be computed again
      engine.reset();
      session.restore(session.messages(), {});
      throw;
    }
  }
  // A place behind the end of the cache is none: whoever wrote that, it is rendered again.
  place.cached = engine.length();
  std::erase_if(before,
                [&](const ChatPlace& p) { return p.cached < 0 || p.cached > place.cached; });
  session.restore(std::move(messages), std::move(place), std::move(before));
}

}  // namespace nibble
