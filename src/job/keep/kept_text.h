// SPDX-License-Identifier: MIT
// What a teacher writes for rows that are kept: replies to prompts, and text of its own. Made once
// and kept as a file beside the run's checkpoints, so that a run that goes on reads the very same.
#pragma once
#include <filesystem>
#include <memory>

#include "backend/backend.h"
#include "generate/batch_generate.h"
#include "job/keep/kept_source.h"
#include "job/keep/teacher_model.h"
#include "tokenizer/chat_template.h"

namespace nibble {

class KeptWriter {
 public:
  struct Setting {
    DType compute = DType::f32;
    int64_t window = 512;  // tokens of a prompt with its reply, or of a text
    uint64_t seed = 0;
  };
  // Everything must outlive it. The weights are loaded when something is to be written, and given
  // back with it.
  KeptWriter(Backend& backend, const TeacherWeights& teacher, const Tokenizer& tokenizer,
             const ChatTemplate& chat, const Setting& setting, std::filesystem::path directory);
  ~KeptWriter();

  // A JSONL file of conversations, or of texts; one that was made before is taken as it is. The
  // name says what it was made of: weights, prompts, window, seed.
  std::filesystem::path write(const KeptSource& source);

 private:
  struct Model;
  struct Job;
  std::filesystem::path file_of(const Job& job) const;
  std::string replies(const KeptSource& source, const Job& job);
  std::string own_text(const KeptSource& source, const Job& job);
  BatchEngine& engine();

  Backend& be_;
  const TeacherWeights& teacher_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  Setting setting_;
  std::filesystem::path directory_;
  std::unique_ptr<Model> model_;
};

}  // namespace nibble
