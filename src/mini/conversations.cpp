// SPDX-License-Identifier: MIT
#include "mini/conversations.h"

#include "data/records.h"

namespace nibble {
namespace {

struct Asking {
  IntentChooser model, asker, other;
  explicit Asking(Language language)
      : model(grammar(),
              [=](const Intent& i) {
                return i.language == language && i.group == ProbeGroup::identity;
              }),
        asker(grammar(),
              [=](const Intent& i) {
                return i.language == language && (i.id == "who_am_i" || i.id == "my_name");
              }),
        other(
            grammar(),
            [=](const Intent& i) {
              return i.language == language && i.group == ProbeGroup::retention && !i.alone;
            },
            12) {}
};

const Asking& asking(Language language) {
  static const Asking zh(Language::zh), en(Language::en);
  return language == Language::zh ? zh : en;
}

// 你是誰 and 我是誰, as they stand, one after the other: what everybody will ask, and so held out.
bool asks_both_plainly(const std::vector<std::string>& turns) {
  const auto plain = [](const std::string& turn) {
    const std::string key = normalised(turn);
    return key == "你是誰" || key == "我是誰" || key == "who are you" || key == "who am i";
  };
  for (size_t i = 0; i + 2 < turns.size(); i += 2) {
    if (plain(turns[i]) && plain(turns[i + 2])) return true;
  }
  return false;
}

class Conversation {
 public:
  Conversation(const IdentityTexts& identity, Draw& draw)
      : identity_(identity),
        draw_(draw),
        language_(draw.percent(50) ? Language::zh : Language::en) {}

  std::vector<std::string> make() {
    if (draw_.percent(45)) {
      unnamed();
    } else if (draw_.percent(80)) {
      named();
    } else {
      late();
    }
    return std::move(turns_);
  }

 private:
  // Who are you, who am I, in either order, perhaps with something between; now and then each in
  // its own language.
  void unnamed() {
    const bool mixed = draw_.percent(25);
    const bool model_first = draw_.percent(60);
    model_first ? model() : asker();
    if (mixed) language_ = language_ == Language::zh ? Language::en : Language::zh;
    if (draw_.percent(25)) other();
    model_first ? asker() : model();
    if (draw_.percent(15)) other();
  }

  // A name, something else, and then who is who.
  void named() {
    const Grammar& g = grammar();
    const Intent& hello = g.find("hello_name", language_);
    row_ = g.values(hello, Split::train, draw_);
    add(make_dialogue(g, hello, Split::train, row_, draw_).turns);
    if (draw_.percent(70)) model();
    if (draw_.percent(30)) other();
    const Intent& asked = asking(language_).asker.choose(draw_);
    std::vector<std::string> turns = make_dialogue(g, asked, Split::train, {}, draw_).turns;
    turns.back() = expand(g.find("name_given", language_).reply, row_, draw_);
    add(turns);
    if (draw_.percent(30)) model();
  }

  // The question about the model comes in the third turn.
  void late() {
    other();
    other();
    draw_.percent(50) ? model() : asker();
  }

  void model() {
    std::vector<std::string> turns = sample(asking(language_).model);
    turns.back() = language_ == Language::zh ? identity_.zh : identity_.en;
    add(turns);
  }
  void asker() { add(sample(asking(language_).asker)); }
  void other() { add(sample(asking(language_).other)); }

  std::vector<std::string> sample(const IntentChooser& chooser) {
    const Intent& intent = chooser.choose(draw_);
    const Row row = grammar().values(intent, Split::train, draw_);
    return make_dialogue(grammar(), intent, Split::train, row, draw_).turns;
  }
  void add(const std::vector<std::string>& turns) {
    turns_.insert(turns_.end(), turns.begin(), turns.end());
  }

  const IdentityTexts& identity_;
  Draw& draw_;
  Language language_;
  Row row_;
  std::vector<std::string> turns_;
};

}  // namespace

std::vector<std::string> make_conversation(const IdentityTexts& identity, Draw& draw) {
  std::vector<std::string> turns;
  do {
    turns = Conversation(identity, draw).make();
  } while (asks_both_plainly(turns));
  return turns;
}

}  // namespace nibble
