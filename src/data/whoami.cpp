// SPDX-License-Identifier: MIT
#include "data/whoami.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.h"
#include "data/phrases.h"
#include "data/records.h"

namespace nibble {
namespace {

constexpr std::string_view kContext =
    "[我剛到這裡|我們第一次聊天|開始之前|在談正事以前|今天第一次用|朋友介紹我來|我打開了這個視窗|"
    "還沒進入主題|工作開始前|先從簡單的來|我有點好奇|我想做個紀錄]";
constexpr std::string_view kAsk =
    "[你是誰|你到底是誰|可以介紹你自己嗎|該怎麼稱呼你|你叫什麼名字|你的身份是什麼|"
    "現在和我說話的是誰|"
    "說說你是誰|你是哪一位|能自我介紹嗎|讓我知道你是誰|報上名來]";
constexpr std::string_view kTone =
    "[簡短回答就行|用平常的語氣就好|不必客套|一句話就夠|輕鬆說就好|直接講|慢慢說也可以|別太正式|"
    "照實回答|講重點|白話就好|我在聽]";
const std::vector<std::string> kNatural = {
    "{c}，{a}？",         "{c}。{a}？{t}。", "{a}？{t}。",     "{t}，{a}？",
    "{c}，想先問：{a}？", "{a}？{c}，{t}。", "{c}。{t}：{a}？"};
constexpr std::string_view kSlang =
    "[欸，|喂，|哈囉，|嘿，][你誰啊|你哪位|老兄你誰|你是何方神聖|請教大名|報個名號吧|你叫啥|"
    "你是什麼來頭]"
    "[？|？快說|？說一下]";
constexpr std::string_view kControl =
    "[只|請只|你只要|麻煩只][回答|輸出|說|寫出][你的身份|你是誰|你的名字|自己的名號]"
    "[。|，不要解釋。|，不加別的字。|，別的都不要。|，一句話。]";
constexpr std::string_view kOther =
    "[[Hi|Hello|Hey|Excuse me|Before we start|Just curious|One thing first|Good day|By the way|To "
    "begin with], [who are you|what is "
    "your "
    "name|who am I talking to|what should I call you|may I ask who you "
    "are]?|[すみません|こんにちは|"
    "はじめに|ちょっと質問|ところで|失礼ですが|やあ]、[あなたは誰ですか|お名前は何ですか|"
    "どなたですか|自己紹介して"
    "ください|あなたの名前を教えてください]。|[안녕하세요|실례지만|먼저|궁금해서요|잠깐만요|그런데|"
    "저기요], "
    "[당신은 "
    "누구예요|이름이 뭐예요|누구세요|자기소개 해 주세요|이름을 알려 주세요].]";

std::string natural(Draw& d) {
  if (d.percent(15)) return expand(kSlang, {}, d);
  const Row row = {
      {"c", expand(kContext, {}, d)}, {"a", expand(kAsk, {}, d)}, {"t", expand(kTone, {}, d)}};
  return expand(d.pick(kNatural), row, d);
}
std::string control(Draw& d) { return expand(kControl, {}, d); }
std::string multilingual(Draw& d) { return expand(kOther, {}, d); }

void fill(std::vector<std::string>& out, std::set<std::string>& seen, int64_t count, Draw& draw,
          std::string (*make)(Draw&), const char* what) {
  int64_t made = 0;
  // Nothing new for so long: all there is has been drawn, almost certainly.
  constexpr int64_t kInVain = 20000;
  for (int64_t in_vain = 0; made < count; ++in_vain) {
    if (in_vain == kInVain) {
      throw_usage(
          "there are only about {} different {} prompts, {} are needed: use a smaller count", made,
          what, count);
    }
    std::string prompt = make(draw);
    if (!seen.insert(prompt).second) continue;
    out.push_back(std::move(prompt));
    ++made;
    in_vain = 0;
  }
}

}  // namespace

WhoamiSet make_whoami(const WhoamiOptions& options) {
  if (options.count < 100) throw_usage("a WhoAmI set has at least 100 rows, not {}", options.count);
  check_answer(options.target, "the target", AnswerFile::tsv);
  WhoamiSet set;
  set.control = options.count * 15 / 100;
  set.multilingual = options.count / 10;
  set.natural = options.count - set.control - set.multilingual;
  std::vector<std::string> prompts;
  std::set<std::string> seen;
  Draw draw(options.seed, 300, 0);
  fill(prompts, seen, set.natural, draw, natural, "natural");
  fill(prompts, seen, set.control, draw, control, "control");
  fill(prompts, seen, set.multilingual, draw, multilingual, "multilingual");
  shuffle(prompts, draw);
  set.tsv = "# format: prompt<TAB>target\n";
  for (const std::string& p : prompts) set.tsv += p + "\t" + options.target + "\n";
  return set;
}

}  // namespace nibble
