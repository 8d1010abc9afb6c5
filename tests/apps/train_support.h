// SPDX-License-Identifier: MIT
// Runs of the training commands on a toy, and what they left behind.
#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli_run.h"
#include "support/paths.h"

namespace nibble::test {

// Options by name; an empty value takes one of the usual ones away.
using Options = std::map<std::string, std::string>;
inline const char* const kLeaveOut = "";

inline std::vector<std::string> arguments(const std::string& command, Options usual,
                                          const Options& given) {
  for (const auto& [flag, value] : given) usual[flag] = value;
  std::vector<std::string> args = {command};
  for (const auto& [flag, value] : usual) {
    if (value != kLeaveOut) args.insert(args.end(), {flag, value});
  }
  return args;
}

inline std::vector<nlohmann::json> read_jsonl(const std::filesystem::path& file) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The log of a command that must succeed (standard error, progress included).
inline std::string cli_log(const std::vector<std::string>& args) {
  testing::internal::CaptureStderr();
  std::ostringstream out, err;
  EXPECT_EQ(run_cli(args, out, err), 0) << err.str();
  return testing::internal::GetCapturedStderr();
}

// The program as a process of its own.
class Child {
 public:
  // No file it writes may become larger than `file_limit`: a disk that fills up.
  Child(const std::filesystem::path& directory, const std::vector<std::string>& args,
        std::optional<rlim_t> file_limit = {})
      : out_(directory / "child.out"), err_(directory / "child.err") {
    std::vector<std::string> words = {kNibblePath};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const auto redirect = [](const std::filesystem::path& file, int to) {
      ::dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), to);
    };
    redirect(out_, 1);
    redirect(err_, 2);
    if (file_limit) {
      std::signal(SIGXFSZ, SIG_IGN);  // the write fails instead
      const rlimit limit{*file_limit, *file_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::execv(argv[0], argv.data());
    std::_Exit(127);
  }
  ~Child() {
    if (!waited_) ::kill(pid_, SIGKILL), wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  bool running() const {
    siginfo_t info{};
    ::waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0;
  }
  CliResult wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    waited_ = true;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return {code, read_text_file(out_), read_text_file(err_)};
  }

 private:
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
  bool waited_ = false;
};

// A toy model in m/, a few pairs in pairs.tsv, and short runs on them.
class TrainingTest : public testing::Test {
 protected:
  // Lengths differ, so that the number of tokens tells a sample.
  static constexpr const char* kPairs =
      "# a comment\n"
      "hello\tgood day\n"
      "\n"
      "who are you\tnibble\n"
      "hi\tyes\n"
      "what is a nibble\tfour bits\n";
  static constexpr int64_t kSamples = 4;

  static void SetUpTestSuite() {
    shared_ = new TemporaryDirectory("training");
    write_toy_directory(shared_->path() / "m");
    replace_file(shared_->path() / "pairs.tsv", kPairs);
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  static std::string model() { return shared_->file("m"); }
  static std::string pairs() { return shared_->file("pairs.tsv"); }
  // The toy as the predecessor's kind of file, with config and tokenizer beside it.
  static std::string dat() {
    const std::string file = shared_->file("dat/toy.dat");
    if (!std::filesystem::exists(file)) {
      cli_ok({"convert", model(), file, "--quant", "nvfp4", "--threads", "1"});
    }
    return file;
  }

  std::string file(const std::string& name) const { return dir_.file(name); }
  std::string write(const std::string& name, const std::string& text) const {
    replace_file(dir_.path() / name, text);
    return file(name);
  }

  // A model whose training takes over a GiB. The weights are a hole in a file, all zero; memory
  // does not know the difference.
  void write_large_model(const std::string& folder) const {
    Config c;
    c.C = 1024;
    c.L = 1;
    c.Hq = 16;
    c.Hkv = 8;
    c.D = 64;
    c.F = 1024;
    c.V = 151936;
    c.tied = true;
    c.rope.theta = 1e6;
    c.max_positions = 4096;
    nlohmann::json header;
    uint64_t at = 0;
    for (const ParamSpec& p : parameter_table(c)) {
      if (p.slot == ParamSlot::head) continue;
      const uint64_t end = at + uint64_t(p.numel()) * 2;
      header[p.name] = {{"dtype", "BF16"}, {"shape", p.shape}, {"data_offsets", {at, end}}};
      at = end;
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string bytes(8, '\0');
    const uint64_t length = text.size();
    std::memcpy(bytes.data(), &length, 8);
    std::filesystem::create_directories(file(folder));
    write(folder + "/model.safetensors", bytes + text);
    std::filesystem::resize_file(file(folder + "/model.safetensors"), 8 + length + at);
    write(folder + "/config.json", config_text(c));
    write(folder + "/tokenizer.json", mini_tokenizer_text());
  }

  std::vector<std::string> train_arguments(const Options& given) const {
    return arguments("train",
                     {{"--model", model()},
                      {"--train-data", pairs()},
                      {"--steps", "2"},
                      {"--lr", "1e-3"},
                      {"--seq-len", "64"},
                      {"--threads", "1"},
                      {"--sample-mode", "sequential"},
                      {"--self-test", "false"},
                      {"--runs-dir", file("runs")},
                      {"--run-name", "run"}},
                     given);
  }
  CliResult train(const Options& given) const { return cli(train_arguments(given)); }
  // A run that must succeed; the folder it recorded itself in.
  std::filesystem::path trained(Options given) {
    const std::string name = "run" + std::to_string(++runs_);
    given["--run-name"] = name;
    const CliResult r = train(given);
    EXPECT_EQ(r.code, 0) << r.err << r.out;
    last_out_ = r.out;
    return dir_.path() / "runs" / name;
  }
  // The weights of a run into its own folder.
  std::string exported(const Options& given) {
    const std::filesystem::path run = trained(given);
    const auto single = run / "model.dat";
    return file_bytes(std::filesystem::exists(single) ? single : run / "model/model.safetensors");
  }
  // One line a step.
  std::vector<nlohmann::json> metrics(const Options& given) {
    Options more = {{"--export", "false"}};
    more.insert(given.begin(), given.end());
    return read_jsonl(trained(more) / "metrics.jsonl");
  }
  // One value of each line.
  template <class T>
  std::vector<T> column(const std::string& key, const Options& given) {
    std::vector<T> values;
    for (const auto& line : metrics(given)) {
      if (line.contains(key)) values.push_back(line.at(key).get<T>());
    }
    return values;
  }
  double first_loss(Options given) {
    given["--steps"] = "1";
    return column<double>("loss", given).front();
  }
  void refused(const Options& given, int code, const std::string& part) {
    const CliResult r = train(given);
    EXPECT_EQ(r.code, code) << r.err << r.out;
    EXPECT_TRUE(r.err.starts_with("nibble: error: ")) << r.err;
    EXPECT_TRUE(contains(r.err, part)) << part << " in\n" << r.err;
  }

  static TemporaryDirectory* shared_;
  TemporaryDirectory dir_{"training-run"};
  int runs_ = 0;
  std::string last_out_;
};
inline TemporaryDirectory* TrainingTest::shared_ = nullptr;

}  // namespace nibble::test
