// SPDX-License-Identifier: MIT
// A conversation on disk together with the keys and values its tokens have in the cache, so that
// going on costs no second pass over it. A safetensors file: the cache and the tokens as tensors,
// the messages and what they were said with in its metadata, and a checksum of all of it.
#pragma once
#include <filesystem>
#include <string>

#include "core/file.h"
#include "generate/chat_session.h"
#include "runtime/runtime.h"

namespace nibble {

// What a cache was computed with: two that differ in any of it cannot stand for each other.
struct CacheOrigin {
  std::string weights;    // a hash of every byte of the weight files
  std::string tokenizer;  // a hash of what text becomes tokens by
  std::string computed;   // types and recipes: "compute f32, activations int8, ..."
  std::string cache;      // type of keys and values
};
// Reads the weight files: as long as that takes.
CacheOrigin cache_origin(const Runtime& rt, const EngineOptions& engine);

// Throws FormatError; with Existing::keep also when the file is there.
void save_chat(const std::filesystem::path& file, Existing existing, const CacheOrigin& origin,
               const ChatSession& session, Engine& engine);
// Instead of what `session` and `engine` hold, which stays when the file is refused: FormatError
// for a damaged file, UsageError for one of another model, another type, or a longer context.
void load_chat(const std::filesystem::path& file, const CacheOrigin& origin, ChatSession& session,
               Engine& engine);

}  // namespace nibble
