// SPDX-License-Identifier: MIT
// The record of a run: its folder, its files, what survives a crash and a full disk.
#include "runlog/run_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/command_line.h"
#include "core/durable/file_lock.h"
#include "core/durable/last_words.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/sha256.h"
#include "core/utc_time.h"
#include "runlog/run_prune.h"
#include "runlog/run_recorder.h"
#include "support/text.h"
#include "support/toy_dir.h"
#include "train/memory.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

StepRecord record(int64_t step) {
  StepRecord r;
  r.step = step;
  r.loss = 4.0 / double(step);
  r.smoothed_loss = 5.0 / double(step);
  r.lr = 1e-5;
  r.grad_norm = 0.5;
  r.tokens = 100;
  r.response_tokens = 40;
  r.seconds = 0.25;
  r.loss_scale = 1024;
  return r;
}

TEST(UtcTime, TextAndBack) {
  const UtcTime t =
      std::chrono::system_clock::from_time_t(1772100672) + std::chrono::nanoseconds(123456700);
  EXPECT_EQ(utc_text(t), "2026-02-26T10:11:12.1234567Z");
  EXPECT_EQ(utc_stamp(t), "20260226T101112Z");
  EXPECT_EQ(parse_utc("2026-02-26T10:11:12.1234567Z"), t);
  for (const char* bad : {"", "2026", "2026-02-26T10:11:12.1234567", "2026-02-26T10:11:12.1Zx"}) {
    EXPECT_FALSE(parse_utc(bad)) << bad;
  }
  EXPECT_EQ(duration_text(0), "0:00:00");
  EXPECT_EQ(duration_text(3723.4), "1:02:03");
  EXPECT_EQ(duration_text(2 * 86400 + 60), "2 d 0:01:00");
  EXPECT_EQ(duration_text(kNoValue), "?");
}

TEST(RunFolder, IsNeverAnExistingOne) {
  const TemporaryDirectory dir("runs");
  const fs::path base = dir.path() / "deep" / "runs";
  EXPECT_EQ(create_run_folder(base, "a"), base / "a");
  replace_file(base / "a" / "config.toml", "mine");
  EXPECT_EQ(create_run_folder(base, "a"), base / "a-2");
  replace_file(base / "a-3", "a file");
  EXPECT_EQ(create_run_folder(base, "a"), base / "a-4");
  EXPECT_EQ(read_text_file(base / "a" / "config.toml"), "mine");
  EXPECT_TRUE(fs::is_empty(base / "a-2"));
  for (const char* bad : {"", ".", "..", "a/b", "/tmp", "latest"}) {
    EXPECT_THROW(create_run_folder(base, bad), UsageError) << bad;
  }
  EXPECT_THROW(create_run_folder(base / "a-3", "x"), FormatError);  // a file is in the way
}

TEST(RunFolder, DefaultName) {
  const TemporaryDirectory dir("runs");
  RunFolderOptions o;
  EXPECT_EQ(o.runs_dir, "nibble-runs");
  o.runs_dir = dir.path();
  const std::string name = create_run_folder(o, "train").filename().string();
  EXPECT_EQ(name.size(), std::string("20260226T101112Z-train").size());
  EXPECT_TRUE(name.ends_with("Z-train")) << name;
  o.run_name = "mine";
  EXPECT_EQ(create_run_folder(o, "train"), dir.path() / "mine");
}

TEST(RunFolder, ShellQuoting) {
  EXPECT_EQ(shell_quoted("a/b-c.dat"), "a/b-c.dat");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_TRUE(contains(own_command_line(), "test"));
}

TEST(RunMetrics, LineAndBack) {
  StepRecord r = record(7);
  r.rss_bytes = 3 << 20;
  r.skipped = true;
  const std::string line = metrics_line(r);
  const json j = json::parse(line);
  EXPECT_EQ(j["step"], 7);
  EXPECT_EQ(j["rss_mib"], 3.0);
  EXPECT_EQ(j["loss_scale"], 1024.0);
  EXPECT_EQ(j["response_tokens"], 40);
  const auto back = parse_metrics_line(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(metrics_line(*back), line);
  EXPECT_FALSE(contains(line, "kept"));
  r.taught_loss = 1.5, r.kept_loss = 0.01, r.kept_tokens = 96;
  const auto kept = parse_metrics_line(metrics_line(r));
  EXPECT_EQ(kept->taught_loss, 1.5);
  EXPECT_EQ(kept->kept_loss, 0.01);
  EXPECT_EQ(kept->kept_tokens, 96);
  r.loss = kNoValue;
  EXPECT_TRUE(contains(metrics_line(r), "\"loss\":null"));
  EXPECT_TRUE(std::isnan(parse_metrics_line(metrics_line(r))->loss));
  for (const char* bad : {"", "{", "[]", "3", "{\"loss\":1}", "{\"step\":\"x\",\"loss\":1}",
                          "{\"step\":3,\"held_out_loss\":1}", "{\"step\":-1,\"loss\":1}"}) {
    EXPECT_FALSE(parse_metrics_line(bad)) << bad;
  }
}

TEST(RunMetrics, ATornLineIsReadWhenItIsWhole) {
  const TemporaryDirectory dir("metrics");
  const fs::path file = dir.path() / "metrics.jsonl";
  MetricsReader reader(file);
  EXPECT_TRUE(reader.read_new().empty());  // not there yet
  const std::string third = metrics_line(record(3)) + "\n";
  {
    std::ofstream out(file);
    out << metrics_line(record(1)) << "\nnot json\n" << metrics_line(record(2)) << "\n";
    out << third.substr(0, 20);
  }
  auto records = reader.read_new();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].step, 2);
  EXPECT_TRUE(reader.read_new().empty());
  std::ofstream(file, std::ios::app) << third.substr(20);
  records = reader.read_new();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].step, 3);
  EXPECT_EQ(records[0].loss, record(3).loss);
}

TEST(RunMetrics, NeverOverAnExistingFile) {
  const TemporaryDirectory dir("metrics");
  replace_file(dir.file("metrics.jsonl"), "mine");
  EXPECT_THROW(MetricsWriter(dir.path() / "metrics.jsonl"), FormatError);
  EXPECT_EQ(read_text_file(dir.file("metrics.jsonl")), "mine");
}

TEST(RunRecorder, WritesItsFolder) {
  const TemporaryDirectory dir("recorder");
  const fs::path folder = create_run_folder(dir.path(), "run");
  {
    RunRecorder recorder(folder, "train", "command = \"train\"\nsteps = 3\n", 3);
    EXPECT_EQ(recorder.directory(), folder);
    EXPECT_EQ(read_status(folder).state, RunState::running);
    EXPECT_EQ(process_state(folder, read_status(folder)), ProcessState::alive);
    recorder.set_steps_per_epoch(2);
    recorder.also_report_memory_to(dir.path() / "new" / "vram.json");
    TrainArenas arenas;
    recorder.arenas(arenas.all());
    recorder.phase("start", 0);
    for (int64_t step = 1; step <= 3; ++step) {
      recorder.phase("batch_ready", step);
      recorder.step(record(step));
    }
    recorder.held_out(3, 1.5);
    recorder.checkpoint(dir.path() / "step-2");
    EXPECT_EQ(read_status(folder).checkpoint, (dir.path() / "step-2").string());
    recorder.checkpoint(dir.path() / "step-3");  // too soon for a status of its own
    recorder.exported(dir.path() / "model.dat");
    recorder.finish(RunState::finished);
    recorder.finish(RunState::failed);  // the first word counts
  }
  EXPECT_EQ(read_text_file(folder / "config.toml"), "command = \"train\"\nsteps = 3\n");
  EXPECT_TRUE(read_text_file(folder / "command.txt").starts_with(own_command_line() + "\n# in "));

  const RunStatus s = read_status(folder);
  EXPECT_EQ(s.state, RunState::finished);
  EXPECT_EQ(s.command, "train");
  EXPECT_EQ(s.steps, 3);
  EXPECT_EQ(s.last.step, 3);
  EXPECT_EQ(s.last.loss, record(3).loss);
  EXPECT_EQ(s.last.tokens_per_second, 400);  // 100 tokens in 0.25 s
  EXPECT_GT(s.last.rss_bytes, 1u << 20);
  EXPECT_EQ(s.held_out_loss, 1.5);
  EXPECT_EQ(s.eta_seconds, 0);
  EXPECT_EQ(s.checkpoint, (dir.path() / "step-3").string());
  EXPECT_EQ(s.output, (dir.path() / "model.dat").string());
  EXPECT_TRUE(parse_utc(s.started_utc) && parse_utc(s.updated_utc));

  const std::string metrics = read_text_file(folder / "metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 4);
  EXPECT_TRUE(contains(metrics, "{\"step\":3,\"held_out_loss\":1.5}\n"));
  EXPECT_EQ(MetricsReader(folder / "metrics.jsonl").read_new().size(), 3u);

  for (const char* plot : {"loss.svg", "lr.svg", "speed.svg", "memory.svg"}) {
    const std::string svg = read_text_file(folder / plot);
    EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << plot;
    EXPECT_TRUE(contains(svg, " of run</text>")) << plot;
    EXPECT_FALSE(contains(svg, "no data yet")) << plot;
  }
  EXPECT_TRUE(contains(read_text_file(folder / "loss.svg"), ">held out</text>"));
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_FALSE(contains(entry.path().filename().string(), "tmp")) << entry.path();
  }
  EXPECT_EQ(json::parse(read_text_file(dir.path() / "new" / "vram.json"))["Samples"].size(), 4u);
}

TEST(RunRecorder, MemoryReportHasThePredecessorsForm) {
  const TemporaryDirectory dir("recorder");
  const fs::path folder = create_run_folder(dir.path(), "run");
  RunRecorder recorder(folder, "train", "", 3);
  recorder.set_steps_per_epoch(2);
  recorder.phase("backward_done", 3);
  TrainArenas arenas;
  recorder.arenas(arenas.all());
  recorder.finish(RunState::finished);
  const json j = json::parse(read_text_file(folder / "memory.json"));
  EXPECT_EQ(j["Pid"], ::getpid());
  EXPECT_TRUE(parse_utc(j["CreatedUtc"].get<std::string>()));
  ASSERT_EQ(j["Samples"].size(), 1u);
  const json& s = j["Samples"][0];
  EXPECT_EQ(s["Epoch"], 1);
  EXPECT_EQ(s["StepInEpoch"], 1);
  EXPECT_EQ(s["GlobalStep"], 3);
  EXPECT_EQ(s["Phase"], "backward_done");
  EXPECT_TRUE(parse_utc(s["TimestampUtc"].get<std::string>()));
  EXPECT_GT(s["ProcRssMiB"].get<int64_t>(), 0);
  EXPECT_EQ(s["PidMemoryMiB"], s["ProcRssMiB"]);  // no GPU takes part
  EXPECT_GE(s["TotalMemoryMiB"].get<int64_t>(), 1);
  EXPECT_EQ(j["Source"], "host");
  EXPECT_GE(j["PeakProcRssMiB"], s["ProcRssMiB"]);
  ASSERT_EQ(j["Arenas"].size(), arenas.all().size());
  EXPECT_EQ(j["Arenas"][0]["name"], arenas.all()[0]->name());
  EXPECT_TRUE(j["Arenas"][0].contains("bytes") && j["Arenas"][0].contains("peak_bytes"));
}

TEST(RunRecorder, ALongRunKeepsItsMemoryReportShort) {
  MemoryReport report;
  for (int64_t step = 0; step < 5000; ++step) {
    for (const char* phase : {"batch_ready", "backward_done"}) report.sample(phase, 0, step, step);
  }
  EXPECT_LE(report.samples().size(), 4096u);
  EXPECT_GE(report.samples().size(), 1024u);
  EXPECT_EQ(report.samples().size() % 2, 0u);  // whole steps
  EXPECT_EQ(report.samples()[0].global_step, 0);
  EXPECT_GT(report.samples().back().global_step, 4990);
  // Samples that all belong to one step are bounded, too.
  MemoryReport one;
  for (int i = 0; i < 5000; ++i) one.sample("start", 0, 0, 0);
  EXPECT_LE(one.samples().size(), 4096u);
}

TEST(RunRecorder, WithoutAWordItHasFailed) {
  const TemporaryDirectory dir("recorder");
  const fs::path folder = create_run_folder(dir.path(), "run");
  {
    RunRecorder recorder(folder, "train", "", 3);
    recorder.step(record(1));
  }
  EXPECT_EQ(read_status(folder).state, RunState::failed);
  EXPECT_FALSE(read_status(folder).message.empty());
  EXPECT_EQ(read_status(folder).last.step, 1);
}

TEST(RunRecorder, EveryStepIsOnDiskAtOnce) {
  const TemporaryDirectory dir("recorder");
  const fs::path folder = create_run_folder(dir.path(), "run");
  RunRecorder recorder(folder, "train", "", 100);
  MetricsReader reader(folder / "metrics.jsonl");
  for (int64_t step = 1; step <= 50; ++step) {
    recorder.step(record(step));
    ASSERT_EQ(reader.read_new().size(), 1u);
  }
  // The status follows at its own pace.
  EXPECT_LT(read_status(folder).last.step, 50);
}

// A file-size limit stands in for a full disk: the run goes on, one warning says what is missing.
TEST(RunRecorder, AFullDiskIsOneWarning) {
  const TemporaryDirectory dir("recorder");
  const fs::path folder = create_run_folder(dir.path(), "run");
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  testing::internal::CaptureStderr();
  {
    RunRecorder recorder(folder, "train", "", 100);
    recorder.step(record(1));
    const auto size = fs::file_size(folder / "metrics.jsonl");
    const rlimit tight{size + 30, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &tight);
    recorder.step(record(2));  // torn
    recorder.step(record(3));  // nothing
    ::setrlimit(RLIMIT_FSIZE, &old);
    recorder.step(record(4));
    recorder.finish(RunState::finished);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(log.find("warning:"), log.rfind("warning:"));
  EXPECT_TRUE(contains(log, "warning: the record of this run is not whole: cannot write")) << log;
  const auto records = MetricsReader(folder / "metrics.jsonl").read_new();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].step, 4);
  EXPECT_EQ(read_status(folder).state, RunState::finished);
}

TEST(RunRecorder, NeverOverAnotherRun) {
  const TemporaryDirectory dir("recorder");
  const fs::path folder = create_run_folder(dir.path(), "run");
  { const RunRecorder first(folder, "train", "", 3); }
  EXPECT_THROW(RunRecorder(folder, "train", "", 3), FormatError);
  EXPECT_THROW(RunRecorder(dir.path() / "none", "train", "", 3), FormatError);
}

TEST(RunStatus, Damage) {
  const TemporaryDirectory dir("status");
  EXPECT_THROW(read_status(dir.path()), FormatError);
  for (const char* text : {"", "{", "[]", "{}", "{\"state\":3}", "{\"state\":\"asleep\",\"pid\":1}",
                           "{\"state\":\"running\",\"pid\":\"x\"}",
                           "{\"state\":\"running\",\"pid\":1,\"steps\":\"many\"}"}) {
    replace_file(dir.path() / "status.json", text);
    EXPECT_THROW(read_status(dir.path()), FormatError) << text;
  }
}

TEST(RunStatus, KnowsItsProcess) {
  RunStatus s;
  set_own_process(s);
  // In a folder without a lock, as an older version wrote it.
  const TemporaryDirectory dir("process");
  const auto process_of = [&](const RunStatus& status) {
    return process_state(dir.path(), status);
  };
  EXPECT_EQ(process_of(s), ProcessState::alive);
  RunStatus later = s;
  ++later.pid_start;  // the number was given to another process
  EXPECT_EQ(process_of(later), ProcessState::gone);
  later = s;
  later.pid = 0x7ffffff;
  EXPECT_EQ(process_of(later), ProcessState::gone);
  later.host = "elsewhere";
  EXPECT_EQ(process_of(later), ProcessState::on_another_host);
}

// Numbers of processes and names of hosts mean nothing in another container: the lock decides.
TEST(RunStatus, TheLockSaysWhetherARunGoesOn) {
  const TemporaryDirectory dir("lock");
  const fs::path folder = create_run_folder(dir.path(), "run");
  const auto as_seen_elsewhere = [&] {
    RunStatus s = read_status(folder);
    s.pid = 1;
    s.pid_start = 1;
    s.host = "another-container";
    return s;
  };
  {
    RunRecorder recorder(folder, "train", "", 10);
    EXPECT_EQ(process_state(folder, as_seen_elsewhere()), ProcessState::alive);
    EXPECT_FALSE(read_record(folder).gone);
    EXPECT_THROW(RunRecorder(folder, "train", "", 10), FormatError) << "two in one folder";
    replace_file(folder / "status.json", status_json(as_seen_elsewhere()));
    PruneRules rules;
    rules.failed_only = true;
    EXPECT_TRUE(choose_for_pruning(read_records(dir.path()), rules).empty());
    rules.names = {"run"};
    EXPECT_THROW(choose_for_pruning(read_records(dir.path()), rules), UsageError);
  }
  EXPECT_FALSE(fs::exists(lock_in(folder))) << "it goes with the run";
  const fs::path killed = create_run_folder(dir.path(), "killed");
  const pid_t child = ::fork();
  if (child == 0) {
    RunRecorder recorder(killed, "train", "", 10);
    ::_exit(0);  // as a crash: no destructor
  }
  ::waitpid(child, nullptr, 0);
  RunStatus s = read_status(killed);
  s.host = "another-container";
  EXPECT_EQ(process_state(killed, s), ProcessState::gone);
  EXPECT_TRUE(read_record(killed).gone);
}

// A signal that ends the program at once: the status says so.
TEST(RunRecorder, ASignalLeavesNoRunningStatus) {
  const TemporaryDirectory dir("last-words");
  const fs::path folder = create_run_folder(dir.path(), "run");
  const pid_t child = ::fork();
  if (child == 0) {
    RunRecorder recorder(folder, "train", "", 10);
    recorder.step(record(1));
    write_last_words();  // as the handlers do
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const RunStatus s = read_status(folder);
  EXPECT_EQ(s.state, RunState::interrupted);
  EXPECT_EQ(s.message, "a signal or a lack of memory ended it");
  EXPECT_EQ(s.last.step, 1);
}

// A damaged record is left out with a word, and is in nobody's way.
TEST(RunFolder, ABrokenRecordIsInNobodysWay) {
  const TemporaryDirectory dir("broken");
  for (const char* name : {"a", "b", "c"}) {
    RunRecorder recorder(create_run_folder(dir.path(), name), "train", "", 1);
    recorder.finish(RunState::finished);
  }
  replace_file(dir.path() / "a" / "status.json", "");
  replace_file(dir.path() / "b" / "run.json", "");
  ::testing::internal::CaptureStderr();
  const auto records = read_records(dir.path());
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name, "b");
  EXPECT_NE(said.find("left out: "), std::string::npos) << said;
  EXPECT_NE(said.find("a/status.json"), std::string::npos) << said;
  EXPECT_NE(said.find("b/run.json is damaged"), std::string::npos) << said;
}

// What is recorded is what was read, even when another file has its name right afterwards.
TEST(RunRecorder, HashesWhatWasRead) {
  const TemporaryDirectory dir("hashes");
  replace_file(dir.path() / "weights", "first");
  RunRecorder recorder(create_run_folder(dir.path(), "run"), "train", "", 1);
  const InputFile open(dir.path() / "weights");
  replace_file(dir.path() / "weights", "second");
  recorder.input("weights", open);
  recorder.input("train-data", dir.path() / "data", sha256_hex("as read"));
  EXPECT_EQ(recorder.hash_of("weights"), sha256_hex("first"));
  recorder.finish(RunState::finished);
  const RunRecord r = read_record(recorder.directory());
  EXPECT_EQ(r.with_role("weights")[0]->sha256, sha256_hex("first"));
  EXPECT_EQ(r.with_role("train-data")[0]->sha256, sha256_hex("as read"));
}

}  // namespace
}  // namespace nibble::test
