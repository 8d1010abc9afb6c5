// SPDX-License-Identifier: MIT
// Lessons: what a browser may ask for, what becomes of it on disk, and a training from rows to a
// model beside the base.
#include "serve/page/lesson.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "core/file.h"
#include "eval/probe_file.h"
#include "serve/api/api_error.h"
#include "serve/page/lesson_commands.h"
#include "serve/page/lesson_questions.h"
#include "serve/page/lesson_rows.h"
#include "serve/page/trainings.h"
#include "serve/page_support.h"
#include "support/text.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using PageJson = nlohmann::ordered_json;

PageJson row(const std::string& question, const std::string& answer) {
  return {{"question", question}, {"answer", answer}};
}

Lesson read(const PageJson& body) { return read_lesson(body, default_lesson(9'000'000), true); }

std::string refusal(const PageJson& body) {
  try {
    read(body);
    return "";
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status(), 400);
    return e.what();
  }
}

TEST(Lesson, ReadsWhatAPageSends) {
  const Lesson l = read({{"rows", {row("Who?", "Pip.")}},
                         {"keep", "prompts"},
                         {"prompts", {"Hello"}},
                         {"steps", 12},
                         {"lr", 1e-4},
                         {"batch_size", 2}});
  EXPECT_EQ(l.rows[0].answer, "Pip.");
  EXPECT_EQ(l.steps, 12);
  EXPECT_EQ(l.lr, 1e-4);
  EXPECT_EQ(l.batch_size, 2);
  EXPECT_EQ(l.keep, LessonKeep::prompts);
  // As it is kept and read again.
  EXPECT_EQ(lesson_json(read_lesson(lesson_json(l), {}, true)), lesson_json(l));
  // No prompt is nothing kept.
  EXPECT_EQ(read({{"rows", {row("Who?", "Pip.")}}, {"keep", "prompts"}}).keep, LessonKeep::nothing);
}

// Four samples of eight are taught where something is kept.
TEST(Lesson, StepsFollowFromTheRows) {
  const auto steps = [](int rows, const char* keep) {
    PageJson body = {{"rows", PageJson::array()}, {"keep", keep}, {"batch_size", 8}};
    for (int i = 0; i < rows; ++i) body["rows"].push_back(row("q" + std::to_string(i), "a"));
    const Lesson l = read(body);
    EXPECT_GE(passes_of(l), 12);
    return l.steps;
  };
  EXPECT_EQ(steps(4, "own_text"), 60);
  EXPECT_EQ(steps(100, "own_text"), 300);
  EXPECT_EQ(steps(101, "own_text"), 303);
  EXPECT_EQ(steps(100, "nothing"), 150);
  // A step of a large model takes as long as a lesson of a small one, and moves it further.
  const PageJson four = {{"rows", PageJson(4, row("q", "a"))}, {"keep", "own_text"}};
  EXPECT_EQ(read_lesson(four, default_lesson(500'000'000), true).steps, 16);
}

TEST(Lesson, RefusesWhatIsOutOfBounds) {
  const PageJson rows = {row("Who?", "Pip.")};
  EXPECT_TRUE(contains(refusal(PageJson::object()), "nothing to teach"));
  EXPECT_TRUE(contains(refusal({{"rows", {row("Who?", " ")}}}), "row 1: the answer is empty"));
  EXPECT_TRUE(contains(refusal({{"rows", {row("", "x")}}}), "row 1: the question is empty"));
  EXPECT_TRUE(contains(refusal({{"rows", {row(std::string(20000, 'q'), "x")}}}), "bytes"));
  EXPECT_TRUE(contains(refusal({{"rows", PageJson(6000, row("a", "b"))}}), "more than 5000"));
  EXPECT_TRUE(contains(refusal({{"rows", rows}, {"keep", "/etc/passwd"}}), "keep"));
  EXPECT_TRUE(contains(refusal({{"rows", rows}, {"steps", 0}}), "steps"));
  EXPECT_TRUE(contains(refusal({{"rows", rows}, {"lr", "1; rm -rf"}}), "lr"));
  EXPECT_TRUE(contains(refusal({{"rows", rows}, {"output", "/tmp/x"}}), "output"));
  EXPECT_TRUE(contains(refusal({{"rows", {{{"line", R"({"text": "x"})"}}}}}), "row 1"));
}

TEST(Lesson, CommandsAreWordsAndHoldNoneOfItsTexts) {
  Lesson l = read({{"rows", {row("$(touch /tmp/x); --output", "`id`")}},
                   {"keep", "own_text"},
                   {"own_tokens", 500}});
  LessonBase base;
  base.model.model = "mini";
  const auto words =
      train_words(l, base, {"/w/l", "/w/runs", "lesson-1", "/w/l/model/model.dat", "", 64});
  EXPECT_EQ(words.front(), "train");
  for (const std::string& w : words) EXPECT_FALSE(contains(w, "touch") || contains(w, "id`")) << w;
  const auto at = [&](const char* flag) { return *(std::ranges::find(words, flag) + 1); };
  EXPECT_EQ(at("--keep"), "self:500");
  EXPECT_EQ(at("--run-name"), "lesson-1");
  EXPECT_EQ(std::ranges::count(words, "--output"), 1);
  EXPECT_EQ(at("--recipe"), "nvfp4");
  base.dense = true;
  const auto check = check_words("/w/l/model", base, "/w/t", "/w/j");
  EXPECT_EQ(*(std::ranges::find(check, "--recipe") + 1), "bf16");
  const auto plan = plan_words(l, base, 64);
  EXPECT_EQ(*(std::ranges::find(plan, "--recipe") + 1), "bf16");
}

TEST(LessonRows, FilesAreReadByTheRulesOfTrain) {
  PageJson j = rows_of_file("a.tsv", "question\tanswer\n# no\nWho?\t<b>Pip</b>\nbroken\n");
  ASSERT_EQ(j["rows"].size(), 1u);
  EXPECT_EQ(j["rows"][0], row("Who?", "<b>Pip</b>"));
  ASSERT_EQ(j["problems"].size(), 1u);
  EXPECT_TRUE(j["problems"][0].get<std::string>().starts_with("line 4: "));
  const std::string chat =
      R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]})";
  j = rows_of_file("b.jsonl", "{\"prompt\":\"Q\",\"target\":\"A\"}\n" + chat + "\n");
  ASSERT_EQ(j["rows"].size(), 2u) << j;
  EXPECT_EQ(j["rows"][0], row("Q", "A"));
  EXPECT_EQ(j["rows"][1]["line"], chat);  // more than a row holds is taught as it is
  EXPECT_THROW(rows_of_file("b.exe", "x"), ApiError);
  EXPECT_THROW(rows_of_file("", "x"), ApiError);
}

TEST(LessonRows, ProbesAskWhatIsTaughtKeptAndNeither) {
  const TemporaryDirectory dir("probes");
  Lesson l = read({{"rows", {row("What is 12 + 9?", "Much.")}},
                   {"keep", "prompts"},
                   {"prompts", {"Good morning!", "what is 12 + 9"}}});
  l.prompts = prompts_not_taught(l);
  EXPECT_EQ(l.prompts, std::vector<std::string>{"Good morning!"});
  const auto others = other_questions(l);
  EXPECT_GT(others.size(), 8u);
  for (const std::string& q : others) EXPECT_NE(q, "What is 12 + 9?");
  write_lesson_rows(l, dir.path());
  write_lesson_probes(l, others, dir.path());
  const ProbeFile probes = read_probes(dir.path() / "probes.json");  // by the strict reader
  EXPECT_EQ(probes.set.probes.size(), 2 + others.size());
  EXPECT_TRUE(contains(read_text_file(dir.path() / "rows.jsonl"), "Much."));
  EXPECT_EQ(read_text_file(dir.path() / "keep.jsonl"), "{\"prompt\":\"Good morning!\"}\n");
}

// A log may be as long as it likes, and end in a long line.
TEST(Trainings, SayWhatAProgramThatFailedSaidLast) {
  const TemporaryDirectory dir("log");
  const auto log = dir.path() / "train.log";
  StoredLesson lesson;
  lesson.name = "lesson-1";
  lesson.runs = {"lesson-1"};
  const Trainings trainings({}, dir.path());
  const auto message = [&](std::string_view end, uint64_t before) {
    replace_file(log, "");
    std::filesystem::resize_file(log, before);
    append_file(log, std::string(end));
    return trainings.standing(lesson, log).message;
  };
  EXPECT_EQ(message("no\n\n", 0), "it did not begin: no");
  const std::string line = "error: " + std::string(900, 'x');
  EXPECT_EQ(message("first\n" + line + "\n" + line + "\n", uint64_t(200) << 20),
            "it did not begin: first\n" + line + "\n" + line);
  EXPECT_EQ(message(std::string(5000, 'y') + "\n", 10),
            "it did not begin: " + std::string(2000, 'y'));
}

TEST(Trainings, SayWhatIsDoneBeforeTheFirstStep) {
  const TemporaryDirectory dir("log");
  const auto log = dir.path() / "train.log";
  const auto after = [&](std::string_view text) {
    replace_file(log, text);
    return preparing(log);
  };
  EXPECT_FALSE(preparing(log));
  const auto p =
      after("chat template: x\n 51 %, 10 s left: loading (1.20 GiB of 2.35 GiB, 10 s)\n");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->what, "loading");
  EXPECT_EQ(p->percent, 51);
  EXPECT_EQ(p->seconds_left, 10);
  const auto kept =
      after("  5 %, 684 s left: replies to /w/keep.jsonl (1 replies of 20 replies, 36 s)\n");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->what, "replies");
  EXPECT_EQ(kept->seconds_left, 684);
  EXPECT_FALSE(after("100 %, 0 s left: loading (2.35 GiB of 2.35 GiB, 18 s)\n"));
  EXPECT_FALSE(after(" 51 %, 10 s left: loading (1 of 2, 10 s)\nstep 1/20  loss 3.7406\n"));
  EXPECT_FALSE(after(" 51 %, 10 s left: <b>something else</b>\n"));
}

class LessonFlow : public testing::Test {
 protected:
  PageJson until_ended(const std::string& name) {
    for (int i = 0; i < 2400; ++i) {
      const PageJson j = MiniPage::json(mini.get("/api/lessons/" + name));
      if (!j["goes_on"].get<bool>()) return j;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return nullptr;
  }
  std::string says(const std::string& model, const std::string& question) {
    const PageJson body = {{"model", model},
                           {"temperature", 0},
                           {"messages", {{{"role", "user"}, {"content", question}}}}};
    const PageJson j = MiniPage::json(mini.post("/v1/chat/completions", body.dump()));
    return j.contains("choices") ? j["choices"][0]["message"]["content"].get<std::string>()
                                 : j.dump();
  }
  MiniPage mini;
};

TEST_F(LessonFlow, FromRowsToAModelBesideTheBase) {
  const std::string base = says("mini", "Who are you?");
  const PageJson lesson = {
      {"rows", {row("Who are you?", "I am Pip."), row("Where is the key?", "Under the pot.")}},
      {"keep", "nothing"},
      {"steps", 30},
      {"lr", 5e-4},
      {"batch_size", 2}};
  const PageJson plan = MiniPage::json(mini.post("/api/lessons/plan", lesson.dump()));
  EXPECT_EQ(plan["fits"], true) << plan;
  EXPECT_GT(plan["memory"]["total_bytes"].get<uint64_t>(), 10u << 20);
  EXPECT_GT(plan["seconds"].get<double>(), 0);

  const PageJson started = MiniPage::json(mini.post("/api/lessons", lesson.dump()));
  EXPECT_EQ(started["name"], "lesson-1") << started;
  EXPECT_EQ(mini.post("/api/lessons", lesson.dump()).status, 409);  // one at a time
  EXPECT_EQ(mini.post("/api/lessons/lesson-1/load").status, 409);
  EXPECT_EQ(mini.post("/api/lessons/lesson-1/discard").status, 409);
  const PageJson ended = until_ended("lesson-1");
  ASSERT_EQ(ended["state"], "finished") << ended;
  EXPECT_EQ(ended["has_model"], true);
  EXPECT_EQ(ended["scores"]["taught"]["good"], 2) << ended["scores"];
  EXPECT_EQ(MiniPage::json(mini.get("/api/runs"))["runs"][0]["name"], "lesson-1");
  EXPECT_EQ(mini.post("/api/lessons/lesson-1/resume").status, 409);

  ASSERT_EQ(mini.post("/api/lessons/lesson-1/load").status, 200);
  EXPECT_EQ(says("lesson-1", "Who are you?"), "I am Pip.");
  EXPECT_EQ(says("mini", "Who are you?"), base);

  ASSERT_EQ(mini.post("/api/lessons/lesson-1/check").status, 200);
  PageJson checked;
  for (int i = 0; i < 800 && !checked["damage"].is_object(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    checked = MiniPage::json(mini.get("/api/lessons/lesson-1"));
  }
  EXPECT_GT(checked["damage"]["divergence"].get<double>(), 0) << checked;
  EXPECT_LE(checked["damage"]["agreement"].get<double>(), 1);

  std::string archive;
  ApiResponse tar = mini.get("/api/lessons/lesson-1/export");
  while (tar.next(archive)) continue;
  EXPECT_TRUE(contains(archive, "lesson-1/model.dat"));
  EXPECT_TRUE(contains(archive, "lesson-1/config.json"));

  EXPECT_EQ(mini.post("/api/lessons/lesson-1/keep", R"({"name": "../pip"})").status, 400);
  fs::create_directories(mini.folders.models / "taken");
  EXPECT_EQ(mini.post("/api/lessons/lesson-1/keep", R"({"name": "taken"})").status, 409);
  ASSERT_EQ(mini.post("/api/lessons/lesson-1/keep", R"({"name": "pip"})").status, 200);
  EXPECT_TRUE(fs::exists(mini.folders.models / "pip" / "model.dat"));
  EXPECT_TRUE(fs::exists(mini.folders.models / "pip" / "tokenizer.json"));
  EXPECT_EQ(says("lesson-1", "Who are you?"), "I am Pip.");
  fs::remove_all(mini.folders.runs / "lesson-1");  // pruned: the model is still there
  EXPECT_EQ(MiniPage::json(mini.get("/api/lessons/lesson-1"))["state"], "finished");
  ASSERT_EQ(mini.post("/api/lessons/lesson-1/discard").status, 200);
  EXPECT_TRUE(fs::exists(mini.folders.models / "pip" / "model.dat"));
  EXPECT_EQ(mini.get("/api/lessons/lesson-1").status, 404);
}

// What was made and kept learns on, and knows both afterwards.
TEST_F(LessonFlow, BeginsWithWhatAnEarlierOneMade) {
  PageJson lesson = {{"rows", {row("Who are you?", "I am Pip.")}},
                     {"keep", "nothing"},
                     {"steps", 30},
                     {"lr", 5e-4},
                     {"batch_size", 2}};
  for (const auto& [from, status] : {std::pair("lesson-9", 404), {"../models/x", 400}}) {
    lesson["from"] = from;
    EXPECT_EQ(mini.post("/api/lessons", lesson.dump()).status, status) << from;
    EXPECT_EQ(mini.post("/api/lessons/plan", lesson.dump()).status, status) << from;
  }
  lesson["from"] = "";
  ASSERT_EQ(mini.post("/api/lessons", lesson.dump()).status, 200);
  PageJson next = {{"rows", {row("Where is the lamp?", "On the shelf.")}},
                   {"from", "lesson-1"},
                   {"keep", "prompts"},
                   {"prompts", {"Who are you?"}},
                   {"steps", 30},
                   {"lr", 5e-4},
                   {"batch_size", 4}};
  EXPECT_EQ(mini.post("/api/lessons", next.dump()).status, 409);  // it has made none yet
  ASSERT_EQ(until_ended("lesson-1")["state"], "finished");
  ASSERT_EQ(mini.post("/api/lessons/lesson-1/keep", R"({"name": "pip"})").status, 200);

  const PageJson plan = MiniPage::json(mini.post("/api/lessons/plan", next.dump()));
  EXPECT_EQ(plan["fits"], true) << plan;
  ASSERT_EQ(mini.post("/api/lessons", next.dump()).status, 200);
  const PageJson ended = until_ended("lesson-2");
  ASSERT_EQ(ended["state"], "finished") << ended;
  EXPECT_EQ(ended["from"], "lesson-1");
  for (const PageJson& reply : ended["scores"]["replies"]) {  // before: what was learned first
    if (reply["group"] != "kept") continue;
    EXPECT_EQ(reply["first"]["reply"], "I am Pip.");
  }
  ASSERT_EQ(mini.post("/api/lessons/lesson-2/load").status, 200);
  EXPECT_EQ(says("lesson-2", "Where is the lamp?"), "On the shelf.");
  EXPECT_EQ(says("lesson-2", "Who are you?"), "I am Pip.");
  const PageJson run = MiniPage::json(mini.get("/api/runs/lesson-2"));
  EXPECT_TRUE(contains(run.dump(), "models/pip/model.dat")) << run;
  // What it began with is gone: what it cost cannot be measured, and says so.
  ASSERT_EQ(mini.post("/api/lessons/lesson-1/discard").status, 200);
  EXPECT_EQ(mini.post("/api/lessons/lesson-2/check").status, 404);
  EXPECT_EQ(says("lesson-2", "Who are you?"), "I am Pip.");
}

TEST_F(LessonFlow, StopsSavesAndGoesOn) {
  const PageJson lesson = {{"rows", {row("Who are you?", "I am Pip.")}},
                           {"keep", "nothing"},
                           {"steps", 120},
                           {"batch_size", 1}};
  ASSERT_EQ(mini.post("/api/lessons", lesson.dump()).status, 200);
  PageJson now;
  for (int i = 0; i < 1200; ++i) {
    now = MiniPage::json(mini.get("/api/lessons/lesson-1"));
    if (now.contains("now") && now["now"]["step"] >= 2) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(now["goes_on"], true) << now;
  ASSERT_EQ(mini.post("/api/lessons/lesson-1/stop").status, 200);
  const PageJson stopped = until_ended("lesson-1");
  ASSERT_EQ(stopped["state"], "interrupted") << stopped;
  EXPECT_EQ(stopped["has_model"], false);
  EXPECT_EQ(mini.post("/api/lessons/lesson-1/stop").status, 409);
  EXPECT_EQ(mini.post("/api/lessons/lesson-1/load").status, 409);
  ASSERT_EQ(mini.post("/api/lessons/lesson-1/resume").status, 200);
  const PageJson ended = until_ended("lesson-1");
  ASSERT_EQ(ended["state"], "finished") << ended;
  EXPECT_EQ(ended["run"], "lesson-1-2");
  const PageJson run = MiniPage::json(mini.get("/api/runs/lesson-1-2"));
  EXPECT_EQ(run["continues"]["run"], "lesson-1");
  EXPECT_EQ(run["metrics"]["step"], 120);
  ASSERT_EQ(mini.post("/api/lessons/lesson-1/discard").status, 200);
  EXPECT_EQ(MiniPage::json(mini.get("/api/runs"))["runs"].size(), 0u);
}

TEST_F(LessonFlow, ATrainerThatCannotBeginSaysWhy) {
  std::ofstream(mini.folders.runs) << "a file where the folder of runs should be";
  const PageJson lesson = {{"rows", {row("Who?", "Pip.")}}, {"keep", "nothing"}, {"steps", 1}};
  ASSERT_EQ(mini.post("/api/lessons", lesson.dump()).status, 200);
  const PageJson ended = until_ended("lesson-1");
  EXPECT_EQ(ended["state"], "failed") << ended;
  EXPECT_TRUE(contains(ended["message"], "runs")) << ended["message"];
}

}  // namespace
}  // namespace nibble::test
