// SPDX-License-Identifier: MIT
// What the model is to learn follows from the rendering, with any template.
#include "tokenizer/scored_chat.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "support/shared_data.h"
#include "tokenizer/mini_tokenizer.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

Tokenizer mini() { return Tokenizer::parse(test::mini_tokenizer_text(), "mini"); }

const std::vector<Message> kTurns = {
    {Role::user, "q1"}, {Role::assistant, "a1"}, {Role::user, "q2"}, {Role::assistant, "a2"}};

// The replies as text, one after the other.
std::vector<std::string> replies(const ChatTemplate& chat, const Tokenizer& t,
                                 std::span<const Message> messages = kTurns) {
  const auto r = chat.render(messages, {}, GenerationPrompt::no, std::nullopt);
  std::vector<std::string> out;
  for (const ReplySpan& s : reply_spans(chat, messages, {}, r, t)) {
    out.push_back(r.text.substr(s.begin, s.end - s.begin));
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(ScoredChat, BuiltinTemplatesSayItThemselves) {
  const Texts want = {"a1<|im_end|>", "a2<|im_end|>"};
  for (const auto style :
       {TemplateStyle::chatml, TemplateStyle::qwen3, TemplateStyle::predecessor}) {
    EXPECT_EQ(replies(style, mini()), want);
  }
}

// The same without {% generation %}: origins and prompts tell.
TEST(ScoredChat, TemplatesWithoutMarks) {
  const auto chat = [](const std::string& source) {
    return ChatTemplate::compile(source, "t", {{"eos_token", "<|im_end|>"}});
  };
  const std::string chatml =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  EXPECT_EQ(replies(chat(chatml), mini()), (Texts{"a1<|im_end|>", "a2<|im_end|>"}));
  // Words of the template that stand between the prompt and the reply are the model's to write.
  const std::string thinks =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last "
      "%}<think></think>{% endif %}{{ m.content }}{{ eos_token }}\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  EXPECT_EQ(replies(chat(thinks), mini()), (Texts{"a1<|im_end|>", "<think></think>a2<|im_end|>"}));
  // A generation prompt that goes on where old replies do not.
  const std::string ahead =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
  EXPECT_EQ(replies(chat(ahead), mini()), (Texts{"a1<|im_end|>", "a2<|im_end|>"}));
  // No end token at all: the words alone.
  const std::string bare =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}";
  EXPECT_EQ(replies(chat(bare), mini()), (Texts{"a1", "a2"}));
  EXPECT_THROW(replies(chat("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}"
                            "{% endif %}{% endfor %}"),
                       mini()),
               UsageError);
}

TEST(ScoredChat, EndTokens) {
  const Tokenizer t = mini();
  const ScoredChat with = encode_scored(t, {}, kTurns, {}, ContentTokens::plain, true);
  EXPECT_EQ(with.ids.back(), *t.im_end());
  EXPECT_EQ(with.scored.back(), 1);
  EXPECT_EQ(with.last_reply, 3);  // "a", "2", the end
  const ScoredChat without = encode_scored(t, {}, kTurns, {}, ContentTokens::plain, false);
  EXPECT_EQ(without.ids.size() + 1, with.ids.size());
  EXPECT_EQ(without.last_reply, 2);
  EXPECT_EQ(std::count(without.ids.begin(), without.ids.end(), *t.im_end()), 3);
}

// Every real template that shows replies at all: what is scored of a plain conversation begins with
// or contains the reply, and never what the user said.
TEST(ScoredChat, RealTemplates) {
  NIBBLE_SHARED_FILE_OR_SKIP(folder, "templates");
  NIBBLE_SHARED_FILE_OR_SKIP(tokenizer, "qwen3/tokenizer.json");
  const Tokenizer t = Tokenizer::load(tokenizer);
  int shown = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().filename().string();
    const auto chat =
        ChatTemplate::compile(read_text_file(entry.path()), name,
                              {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|im_end|>"}});
    Texts r;
    try {
      r = replies(chat, t);
    } catch (const UsageError& e) {
      continue;  // refuses conversations without tools
    }
    ++shown;
    ASSERT_EQ(r.size(), 2u) << name;
    EXPECT_NE(r[0].find("a1"), std::string::npos) << name << ": " << r[0];
    EXPECT_NE(r[1].find("a2"), std::string::npos) << name << ": " << r[1];
    EXPECT_EQ((r[0] + r[1]).find("q"), std::string::npos) << name << ": " << r[0] << r[1];
  }
  EXPECT_GE(shown, 60);
}

}  // namespace
}  // namespace nibble
