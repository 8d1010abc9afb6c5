// SPDX-License-Identifier: MIT
// The page's files and what it asks of runs and the model; what it must not give or do.
#include "serve/page/page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "core/file.h"
#include "runlog/run_folder.h"
#include "runlog/run_recorder.h"
#include "serve/http/gate.h"
#include "serve/page/page_files.h"
#include "serve/page/path_parts.h"
#include "serve/page/run_names.h"
#include "serve/page/tar_stream.h"
#include "serve/page_support.h"
#include "support/text.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using PageJson = nlohmann::ordered_json;

const char* const kMarkup = "<img src=x onerror=alert(1)><script>alert(2)</script>";

std::string header_of(const ApiResponse& r, const std::string& name) {
  for (const auto& [n, v] : r.headers) {
    if (n == name) return v;
  }
  return "";
}

TEST(PageFiles, ThePolicyLetsNothingInFromElsewhere) {
  const auto index = page_file("/");
  ASSERT_TRUE(index);
  EXPECT_EQ(index->content_type, "text/html; charset=utf-8");
  const std::string policy = header_of(*index, "Content-Security-Policy");
  EXPECT_EQ(policy,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
            "'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
  for (const EmbeddedFile& f : page_files()) {
    const auto file = page_file(std::string(f.path));
    ASSERT_TRUE(file) << f.path;
    EXPECT_EQ(header_of(*file, "Content-Security-Policy"), policy) << f.path;
    EXPECT_EQ(header_of(*file, "Referrer-Policy"), "no-referrer") << f.path;
  }
  for (const char* path : {"", "/index.html", "/page", "/page/", "/page/../page/main.js",
                           "/page/lesson.json", "//", "/page/static/main.js"}) {
    EXPECT_FALSE(page_file(path)) << path;
  }
}

// What the policy would stop anyway must not be there in the first place; nor what would take a
// text for markup.
TEST(PageFiles, NothingInlineAndNoMarkupFromTexts) {
  const std::regex inline_code(
      R"(<style|<script(?![^>]*\bsrc=)|\son\w+\s*=|\sstyle\s*=|javascript:|https?://)");
  const std::string html(find_file(page_files(), "/")->bytes);
  EXPECT_FALSE(std::regex_search(html, inline_code));
  const std::regex named(R"re((?:src|href)="([^"]+)")re");
  for (auto m = std::sregex_iterator(html.begin(), html.end(), named); m != std::sregex_iterator();
       ++m) {
    EXPECT_TRUE(page_file((*m)[1])) << (*m)[1];
  }
  const std::regex writes(
      R"(innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser|createContextualFragment)");
  const std::regex imports(R"re((?:from|import\() ?'([^']+)')re");
  // Offline: nothing is named that lies elsewhere, but for SVG's name of itself.
  const std::regex elsewhere(
      R"re(url\(|@import|(https?:)?//(?!www\.w3\.org/2000/svg)[a-z0-9-]+\.)re");
  int modules = 0;
  for (const EmbeddedFile& f : page_files()) {
    if (!f.path.ends_with(".js") || f.path.starts_with("/page/lib/")) continue;
    const std::string text(f.bytes);
    EXPECT_FALSE(std::regex_search(text, writes)) << f.path;
    EXPECT_FALSE(std::regex_search(text, elsewhere)) << f.path;
    for (auto m = std::sregex_iterator(text.begin(), text.end(), imports);
         m != std::sregex_iterator(); ++m) {
      std::string path = (*m)[1];
      if (path.starts_with("./")) path = "/page/" + path.substr(2);
      EXPECT_TRUE(page_file(path) || path.starts_with("/page/lib/")) << f.path << ": " << path;
    }
    ++modules;
  }
  EXPECT_GT(modules, 15);
}

TEST(PageFiles, NeedNoKeyButTheirPathsAlone) {
  Gate gate({"0123456789abcdef", {}, {}, page_paths()});
  const auto refused = [&](const std::string& target) {
    const RequestHead head =
        parse_request_head("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n", {});
    try {
      gate.check(head);
      return 0;
    } catch (const ApiError& e) {
      return e.status();
    }
  };
  EXPECT_EQ(refused("/"), 0);
  EXPECT_EQ(refused("/page/main.js"), 0);
  for (const char* path : {"/api/model", "/api/runs", "/api/lessons", "/v1/models", "/page/",
                           "/page/../api/runs", "//", "/page/main.js/../../api/runs"}) {
    EXPECT_EQ(refused(path), 401) << path;
  }
}

TEST(PathParts, AreTakenAsTheyAre) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(path_parts("/api/runs"), (Parts{"api", "runs"}));
  EXPECT_EQ(path_parts("/api//runs/"), (Parts{"api", "", "runs", ""}));
  EXPECT_EQ(path_parts("/"), Parts{""});
}

TEST(RunNames, OnlyRealFoldersOfTheFolder) {
  const TemporaryDirectory dir("names");
  fs::create_directories(dir.path() / "base" / "run-1" / "inside");
  fs::create_directories(dir.path() / "base" / ".trash");
  fs::create_directories(dir.path() / "outside");
  fs::create_directory_symlink(dir.path() / "outside", dir.path() / "base" / "link");
  std::ofstream(dir.path() / "base" / "file") << "x";
  const fs::path base = dir.path() / "base";
  EXPECT_EQ(folder_inside(base, "run-1", "run"), base / "run-1");
  for (const std::string name : {"", ".", "..", "../outside", "run-1/inside", "/etc", ".trash",
                                 "link", "file", "none", "run-1\n", "run-1/", "..\\outside"}) {
    try {
      folder_inside(base, name, "run");
      FAIL() << name;
    } catch (const ApiError& e) {
      EXPECT_EQ(e.status(), 404) << name;
    }
  }
}

class PageRuns : public testing::Test {
 protected:
  void record(const std::string& name, double lr) {
    const fs::path folder = create_run_folder(mini.folders.runs, name);
    RunRecorder recorder(folder, "train", fmt::format("lr = {}\n", lr), 3);
    for (int64_t step = 1; step <= 3; ++step) {
      StepRecord r;
      r.step = step;
      r.loss = r.smoothed_loss = 4.0 / double(step);
      r.tokens = 10;
      recorder.step(r);
    }
    std::ofstream(folder / "probes.jsonl")
        << R"({"step":0,"scores":{"taught":{"passed":0,"total":1}}})"
        << "\n"
        << R"({"step":3,"scores":{"taught":{"passed":1,"total":1}}})"
        << "\n";
    std::ofstream replies(folder / "replies.jsonl");
    for (const int step : {0, 3}) {
      replies << PageJson{{"step", step},      {"id", "a"},        {"group", "taught"},
                          {"prompt", kMarkup}, {"reply", kMarkup}, {"passed", step == 3}}
                     .dump()
              << "\n";
    }
    replies.close();
    recorder.finish(RunState::finished);
  }
  MiniPage mini;
};

TEST_F(PageRuns, ListOneCurvesReportNotesAndTwo) {
  EXPECT_EQ(MiniPage::json(mini.get("/api/runs"))["runs"].size(), 0u);
  record("first", 0.5);
  record("second", 0.25);
  const PageJson list = MiniPage::json(mini.get("/api/runs"));
  ASSERT_EQ(list["runs"].size(), 2u);
  EXPECT_EQ(list["runs"][0]["name"], "second");
  EXPECT_EQ(list["runs"][0]["state"], "finished");
  EXPECT_EQ(list["runs"][0]["first_loss"], 4.0);

  const PageJson one = MiniPage::json(mini.get("/api/runs/first"));
  EXPECT_EQ(one["run"], "first");
  EXPECT_EQ(one["replies"][0]["last"]["reply"], kMarkup);  // text: the page makes text nodes of it
  EXPECT_EQ(one["gate_scores"][1]["scores"]["taught"]["passed"], 1);
  EXPECT_TRUE(one["lineage"].contains("children"));

  const PageJson curves = MiniPage::json(mini.get("/api/runs/first/metrics"));
  EXPECT_EQ(curves["loss"]["x"], (PageJson{1, 2, 3}));
  EXPECT_EQ(curves["loss"]["y"][2], 4.0 / 3);

  const PageJson noted =
      MiniPage::json(mini.post("/api/runs/first/notes", R"({"text": "<b>good</b>"})"));
  EXPECT_EQ(noted["notes"][0]["text"], "<b>good</b>");
  EXPECT_EQ(MiniPage::json(mini.get("/api/runs/first"))["notes"].size(), 1u);

  const PageJson two = MiniPage::json(mini.get("/api/compare/first/second"));
  EXPECT_EQ(two["runs"], (PageJson{"first", "second"}));
  EXPECT_EQ(two["settings_that_differ"]["lr"]["second"], "0.25");
  EXPECT_EQ(two["losses"][1]["y"][0], 4.0);
}

// The report is a page of its own: it may run its own script and is of no origin here.
TEST_F(PageRuns, TheReportIsSandboxedAndItsTextsAreText) {
  record("first", 0.5);
  const ApiResponse r = mini.get("/api/runs/first/report");
  EXPECT_EQ(r.status, 200);
  const std::string policy = header_of(r, "Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("sandbox allow-scripts; default-src 'none'")) << policy;
  EXPECT_FALSE(contains(policy, "allow-same-origin"));
  EXPECT_FALSE(contains(r.body, kMarkup));
  EXPECT_TRUE(contains(r.body, "&lt;img src=x onerror=alert(1)&gt;"));
}

TEST_F(PageRuns, RefusesOtherNamesMethodsAndBodies) {
  record("first", 0.5);
  fs::create_directories(mini.folders.runs / "no-run");
  std::ofstream(mini.folder.path() / "secret") << "s";
  for (const char* path :
       {"/api/runs/none", "/api/runs/..", "/api/runs/../secret", "/api/runs/first/config.toml",
        "/api/runs/", "/api/runs/no-run", "/api/runs/.trash", "/api/runs/first/report/x",
        "/api/compare/first", "/api/compare/first/..", "/api/nothing", "/api/",
        "/api/model/x/tensors"}) {
    EXPECT_EQ(mini.get(path).status, 404) << path;
  }
  EXPECT_EQ(mini.post("/api/runs").status, 405);
  EXPECT_EQ(mini.get("/api/runs/first/notes").status, 405);
  EXPECT_EQ(mini.post("/api/runs/first/notes", "{").status, 400);
  EXPECT_EQ(mini.post("/api/runs/first/notes", R"({"text": " "})").status, 400);
  EXPECT_EQ(mini.post("/api/runs/first/notes", R"({"text": "a", "more": 1})").status, 400);
  EXPECT_EQ(
      mini.post("/api/runs/first/notes", R"({"text": ")" + std::string(5000, 'a') + R"("})").status,
      400);
}

TEST(PageModel, ShapeMemorySpeedAndTensors) {
  MiniPage mini;
  const PageJson before = MiniPage::json(mini.get("/api/model"));
  const PageJson& m = before["models"][0];
  EXPECT_EQ(m["name"], "mini");
  EXPECT_EQ(m["config"]["layers"], 8);
  EXPECT_EQ(m["config"]["parameters"].get<int64_t>(),
            mini.model.runtime().model.config.parameter_count());
  EXPECT_EQ(m["weights_bytes"].get<uint64_t>(), mini.model.runtime().model.memory.capacity());
  EXPECT_GT(before["machine"]["resident_bytes"].get<uint64_t>(), 1u << 20);
  ASSERT_EQ(
      mini.post("/v1/completions", R"({"prompt": "Hello", "max_tokens": 5, "ignore_eos": true})")
          .status,
      200);
  const PageJson after = MiniPage::json(mini.get("/api/model"));
  EXPECT_EQ(after["models"][0]["now"]["chosen_tokens"], 4);  // the first comes of the prompt

  const PageJson t = MiniPage::json(mini.get("/api/model/mini/tensors"));
  EXPECT_EQ(t["damaged"], false);
  int packed = 0;
  for (const PageJson& x : t["tensors"]) {
    if (!x["packed"].get<bool>()) continue;
    ++packed;
    // Of NVFP4 with sound weights: some ten percent, never nothing.
    EXPECT_GT(x["error"].get<double>(), 0.02) << x["name"];
    EXPECT_LT(x["error"].get<double>(), 0.3) << x["name"];
  }
  EXPECT_EQ(packed, 8 * 7 + 1);
}

TEST(ModelShelf, AnswersForTheModelThatIsNamed) {
  MiniPage mini;
  const std::string ask =
      R"({"model": "other", "prompt": "Hello", "max_tokens": 3, "stream": true})";
  EXPECT_EQ(mini.post("/v1/completions", ask).status, 404);
  mini.shelf.put(std::make_shared<RunningModel>(
      MiniPage::open(kSourceDir + std::string("/models/mini")), "other", MiniPage::settings()));
  const PageJson list = MiniPage::json(mini.get("/v1/models"));
  EXPECT_EQ(list["data"][0]["id"], "mini");
  EXPECT_EQ(list["data"][1]["id"], "other");
  EXPECT_EQ(mini.get("/v1/models/other").status, 200);
  ApiResponse r = mini.post("/v1/completions", ask);
  ASSERT_EQ(r.status, 200);
  mini.shelf.put(nullptr);  // the stream keeps its model
  std::string text;
  while (r.next(text)) continue;
  EXPECT_TRUE(contains(text, R"("model":"other")")) << text;
  EXPECT_TRUE(text.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(mini.post("/v1/completions", ask).status, 404);
  EXPECT_EQ(mini.post("/v1/completions", R"({"prompt": "Hello", "max_tokens": 1})").status, 200);
}

TEST(TarStream, IsWhatTarReads) {
  const TemporaryDirectory dir("tar");
  const std::string large(1500000, 'x');
  replace_file(dir.path() / "a.txt", "hello");
  replace_file(dir.path() / "b.bin", large);
  replace_file(dir.path() / "empty", "");
  fs::create_directory(dir.path() / "folder");
  fs::create_symlink("/etc/passwd", dir.path() / "link");
  TarStream tar(dir.path(), "model");
  std::string out;
  while (tar.next(out)) continue;
  const fs::path archive = dir.path() / "folder" / "out.tar";
  replace_file(archive, out);
  const std::string to = (dir.path() / "folder").string();
  ASSERT_EQ(std::system(("tar -C " + to + " -xf " + archive.string()).c_str()), 0);
  EXPECT_EQ(read_text_file(fs::path(to) / "model" / "a.txt"), "hello");
  EXPECT_EQ(read_text_file(fs::path(to) / "model" / "b.bin"), large);
  EXPECT_EQ(read_text_file(fs::path(to) / "model" / "empty"), "");
  EXPECT_FALSE(fs::exists(fs::path(to) / "model" / "link"));
  EXPECT_THROW(tar_header(std::string(101, 'n'), 1), Error);
  // More than eleven octal digits hold: 2^33 bytes, in binary.
  const std::string header = tar_header("n", uint64_t(1) << 33);
  EXPECT_EQ(uint8_t(header[124]), 0x80);
  EXPECT_EQ(header[131], 2);
}

}  // namespace
}  // namespace nibble::test
