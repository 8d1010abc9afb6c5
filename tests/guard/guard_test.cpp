// SPDX-License-Identifier: MIT
// nibble guard: limits, exit codes, and that nothing is left behind.
#include "guard/guard.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "apps/cli_run.h"
#include "guard/gpu_memory.h"
#include "guard/held_signals.h"
#include "guard/process_tree.h"
#include "support/paths.h"

namespace nibble::test {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

class SetVariable {
 public:
  SetVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~SetVariable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

struct Outcome {
  int code = 0;
  std::string log;  // standard error
  double seconds = 0;
};

class GuardTest : public testing::Test {
 protected:
  GuardTest() {
    for (const char* name : {"GPU_LIMIT_GB", "GPU_OVER_SECS", "GPU_POLL_SECS"}) ::unsetenv(name);
  }
  ~GuardTest() override { EXPECT_EQ(marked(), 0); }

  // Runs `nibble guard` in this process.
  Outcome guard(std::vector<std::string> args, const std::string& poll = "0.05") {
    args.insert(args.begin(), {"guard", "--poll-secs", poll});
    testing::internal::CaptureStderr();
    std::ostringstream out, err;
    const auto start = Clock::now();
    Outcome r;
    r.code = run_cli(args, out, err);
    r.seconds = seconds_since(start);
    r.log = testing::internal::GetCapturedStderr() + err.str();
    return r;
  }

  static std::vector<std::string> child(const std::vector<std::string>& action,
                                        std::vector<std::string> options = {}) {
    options.insert(options.end(), {"--", kGuardChild});
    options.insert(options.end(), action.begin(), action.end());
    return options;
  }

  // Starts the program itself; returns its process id.
  pid_t start(const std::vector<std::string>& args) {
    std::vector<std::string> words = {kNibblePath, "--quiet", "guard"};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDERR_FILENO);
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
    return pid;
  }

  // Living processes that carry this test's mark in their environment.
  int marked() const {
    int n = 0;
    for (const ProcessInfo& p : list_processes()) {
      if (!p.alive() || p.pid == ::getpid()) continue;
      std::ifstream in("/proc/" + std::to_string(p.pid) + "/environ");
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      n += contains(text, "NIBBLE_GUARD_MARK=" + mark_) ? 1 : 0;
    }
    return n;
  }
  void wait_until_marked(int n) const {
    int found = 0;
    for (int i = 0; i < 1000 && (found = marked()) < n; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_GE(found, n);
  }

  std::string mark_ = std::to_string(::getpid()) + "-" + std::to_string(++counter_);
  SetVariable set_mark_{"NIBBLE_GUARD_MARK", mark_};
  SetVariable no_gpu_{"PATH", "/usr/bin-without-nvidia-smi"};
  static inline int counter_ = 0;
};

int exit_code(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1000 + WTERMSIG(wait_status);
}
int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return exit_code(status);
}

TEST_F(GuardTest, ExitCodeOfTheProgram) {
  EXPECT_EQ(guard(child({"exit", "0"}, {"--ram-limit-gb", "1"})).code, 0);
  EXPECT_EQ(guard(child({"exit", "37"}, {"--ram-limit-gb", "1"})).code, 37);
  EXPECT_EQ(guard(child({"raise", "9"}, {"--ram-limit-gb", "1"})).code, 128 + 9);
  EXPECT_EQ(guard(child({"raise", "15"}, {"--ram-limit-gb", "1"})).code, 128 + 15);
}

// The predecessor's habit: `guard -l 108 script FILE ARGS` runs FILE. The program of that name
// would empty FILE.
TEST_F(GuardTest, TheWordScriptIsThePredecessors) {
  EXPECT_EQ(guard({"--ram-limit-gb=1", "script", kGuardChild, "exit", "7"}).code, 7);
  const TemporaryDirectory dir("script");
  const std::string file = (dir.path() / "run.sh").string();
  const std::string text = "#!/bin/sh\nexit 9\n";
  replace_file(file, text);
  EXPECT_NE(guard({"--ram-limit-gb=1", "script", file}).code, 0) << "it may not be executed";
  EXPECT_EQ(read_text_file(file), text);
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  EXPECT_EQ(guard({"--ram-limit-gb=1", "script", file, "--quiet"}).code, 9);
  EXPECT_EQ(read_text_file(file), text);
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  EXPECT_EQ(guard({"--ram-limit-gb=1", "script", "run.sh"}).code, 9) << "of this folder";
  std::filesystem::current_path(here);
}

TEST(HeldSignals, WaitUntilTheWorkIsDone) {
  static std::atomic<int> came{0};
  const auto before = std::signal(SIGTERM, [](int) { ++came; });
  const auto ignored = std::signal(SIGHUP, SIG_IGN);
  {
    const HeldSignals held("the export");
    ::raise(SIGTERM);
    ::raise(SIGTERM);
    ::raise(SIGHUP);
    EXPECT_EQ(came, 0);
  }
  EXPECT_EQ(came, 1);
  ::raise(SIGTERM);
  EXPECT_EQ(came, 2) << "the handler is the one of before";
  std::signal(SIGTERM, before);
  std::signal(SIGHUP, ignored);
}

TEST_F(GuardTest, ProgramIsGivenItsArgumentsWithAndWithoutDashes) {
  EXPECT_EQ(guard({"--ram-limit-gb=1", kGuardChild, "exit", "3", "--help"}).code, 3);
  EXPECT_EQ(guard({"--ram-limit-gb=1", kGuardChild, "exit", "4", "--", "--nope"}).code, 4);
  EXPECT_EQ(guard({"--ram-limit-gb=1", "--", kGuardChild, "exit", "5", "--quiet"}).code, 5);
  // nibble ignores SIGPIPE; what it starts must not inherit that.
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(guard(child({"sigpipe"}, {"--ram-limit-gb", "1"})).code, 0);
  std::signal(SIGPIPE, before);
}

TEST_F(GuardTest, LogLines) {
  const Outcome r =
      guard(child({"hold", "64", "0.4"}, {"--ram-limit-gb", "1", "--report-secs=0.1"}));
  EXPECT_EQ(r.code, 0);
  const std::string running = std::string("[guard] running: ") + kGuardChild + " hold 64 0.4\n";
  for (const std::string& part : std::vector<std::string>{
           "[guard] GPU memory is not watched: there is no nvidia-smi in PATH\n",
           "[guard] ram limit=1GB (1024MiB), over=0s, poll=0.05s\n", running, "[guard] guard_pid=",
           "[guard] started pid=", " processes=1 ram=", "[guard] peak ram="}) {
    EXPECT_TRUE(contains(r.log, part)) << part << " in\n" << r.log;
  }
  const size_t at = r.log.find("peak ram=");
  const int peak = std::atoi(r.log.c_str() + at + 9);
  EXPECT_GE(peak, 64);
  EXPECT_LT(peak, 200);
}

TEST_F(GuardTest, KillsWhatExceeds) {
  const Outcome r = guard(child({"hold", "300", "60"}, {"--ram-limit-gb", "0.125"}));
  EXPECT_EQ(r.code, 124);
  EXPECT_LT(r.seconds, 20);
  EXPECT_TRUE(contains(r.log, "[guard] RAM limit exceeded (immediate mode): tree_mem=")) << r.log;
  EXPECT_TRUE(contains(r.log, " limit=128MiB. killing PID=")) << r.log;
  EXPECT_TRUE(contains(r.log, "[guard] killed by watchdog.\n")) << r.log;
}

// No process of it exceeds the limit, all four together do; one of them is a daemon.
TEST_F(GuardTest, KillsATreeWithItsDaemon) {
  const Outcome r = guard(child({"tree", "80", "60"}, {"--ram-limit-gb", "0.2"}));
  EXPECT_EQ(r.code, 124) << r.log;
  EXPECT_LT(r.seconds, 20);
  EXPECT_EQ(marked(), 0);
}

TEST_F(GuardTest, ATreeBelowTheLimitLives) {
  const Outcome r = guard(child({"tree", "20", "0.3"}, {"--ram-limit-gb", "0.5"}));
  EXPECT_EQ(r.code, 0) << r.log;
}

TEST_F(GuardTest, StubbornProgramsAreKilledAfterTheGrace) {
  // Over the limit for a while: what still grows gets no grace.
  const Outcome r =
      guard(child({"hold-stubborn", "300", "60"},
                  {"--ram-limit-gb", "0.125", "--over-secs", "1", "--grace-secs", "0.3"}));
  EXPECT_EQ(r.code, 124);
  EXPECT_GE(r.seconds, 1.3);
  EXPECT_LT(r.seconds, 20);
  EXPECT_EQ(
      guard(child({"hold-stubborn", "300", "60"}, {"--ram-limit-gb", "0.125", "--grace-secs", "0"}))
          .code,
      124);
}

TEST_F(GuardTest, WhatGoesOnGrowingHasNoGrace) {
  const Outcome r =
      guard(child({"grow-stubborn"}, {"--ram-limit-gb", "0.125", "--grace-secs", "50"}));
  EXPECT_EQ(r.code, 124);
  EXPECT_LT(r.seconds, 25);
}

TEST_F(GuardTest, SharedPagesCountOnce) {
  // Five processes with the same 100 MiB: 500 MiB resident, 100 MiB of memory.
  const Outcome r = guard(child({"shared", "100", "0.6"}, {"--ram-limit-gb", "0.25"}));
  EXPECT_EQ(r.code, 0) << r.log;
}

// Memory held as a file without a name counts as memory, and once.
TEST_F(GuardTest, MemoryFilesCount) {
  const Outcome over = guard(child({"memfd", "200", "20"}, {"--ram-limit-gb", "0.1"}));
  EXPECT_EQ(over.code, 124) << over.log;
  const Outcome below = guard(child({"memfd", "60", "1", "1"}, {"--ram-limit-gb", "0.1"}));
  EXPECT_EQ(below.code, 0) << below.log;
}

TEST_F(GuardTest, AProcessWithoutItsFirstThreadCounts) {
  const Outcome r = guard(child({"headless", "300", "60"}, {"--ram-limit-gb", "0.125"}));
  EXPECT_EQ(r.code, 124) << r.log;
  EXPECT_LT(r.seconds, 20);
}

// The time over the limit counts from when it was exceeded last, not altogether.
TEST_F(GuardTest, OverSecsLetsPeaksPass) {
  const auto limited = [&](const std::string& over) {
    return guard(child({"spikes", "300", "0.2"}, {"--ram-limit-gb", "0.125", "--over-secs", over}));
  };
  EXPECT_EQ(limited("0.1").code, 124);
  EXPECT_EQ(limited("1.2").code, 0);
}

TEST_F(GuardTest, WhatTheProgramLeavesRunningIsEnded) {
  const Outcome r = guard(child({"daemon", "1", "60"}, {"--ram-limit-gb", "1"}));
  EXPECT_EQ(r.code, 5);
  EXPECT_TRUE(contains(r.log, "killing 1 process it left behind")) << r.log;
  EXPECT_FALSE(contains(r.log, "watchdog")) << r.log;
  EXPECT_EQ(marked(), 0);
}

TEST_F(GuardTest, WhatForksOnAndOnIsCaught) {
  const Outcome r = guard(child({"forks"}, {"--ram-limit-gb", "1", "--grace-secs", "0"}));
  EXPECT_EQ(r.code, 0);  // the first process of the chain ends by itself
  EXPECT_EQ(marked(), 0);
}

TEST_F(GuardTest, ChildrenThatWereThereBeforeAreLeftAlone) {
  const pid_t before = ::fork();
  if (before == 0) {
    ::pause();
    std::_Exit(0);
  }
  EXPECT_EQ(guard(child({"hold", "300", "60"}, {"--ram-limit-gb", "0.125"})).code, 124);
  EXPECT_EQ(::waitpid(before, nullptr, WNOHANG), 0);
  ::kill(before, SIGKILL);
  EXPECT_EQ(wait_for(before), 1000 + SIGKILL);
}

TEST_F(GuardTest, SignalsToTheGuardEndTheTree) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const pid_t pid = start(child({"tree", "1", "60"}, {"--ram-limit-gb", "1"}));
    wait_until_marked(5);  // the guard and four
    ::kill(pid, signal);
    EXPECT_EQ(wait_for(pid), 128 + signal);
    EXPECT_EQ(marked(), 0);
  }
}

TEST_F(GuardTest, ASecondSignalEndsTheGrace) {
  const pid_t pid =
      start(child({"hold-stubborn", "1", "60"}, {"--ram-limit-gb", "1", "--grace-secs", "50"}));
  wait_until_marked(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // SIG_IGN is set by now
  const auto t = Clock::now();
  ::kill(pid, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(marked(), 2);
  ::kill(pid, SIGTERM);
  EXPECT_EQ(wait_for(pid), 128 + SIGTERM);
  EXPECT_LT(seconds_since(t), 30);
}

TEST_F(GuardTest, AKilledGuardTakesTheProgramAlong) {
  const pid_t pid = start(child({"hold", "1", "60"}, {"--ram-limit-gb", "1"}));
  wait_until_marked(2);
  ::kill(pid, SIGKILL);
  wait_for(pid);
  for (int i = 0; i < 500 && marked() > 0; ++i) ::usleep(10000);
  EXPECT_EQ(marked(), 0);
}

TEST_F(GuardTest, KillingItsOwnGroupDoesNotHitTheGuard) {
  const pid_t pid = start(child({"kill-group"}, {"--ram-limit-gb", "1"}));
  EXPECT_EQ(wait_for(pid), 128 + SIGKILL);
}

// On a terminal Ctrl+C belongs to the program; only the second one is the guard's.
TEST_F(GuardTest, CtrlCOnATerminal) {
  for (const bool patient : {true, false}) {
    std::vector<std::string> words = {kNibblePath, "guard"};
    const auto rest = patient ? child({"tidy", "0.5"}, {"--ram-limit-gb", "1"})
                              : child({"hold-stubborn", "1", "60"},
                                      {"--ram-limit-gb", "1", "--grace-secs", "0.1"});
    words.insert(words.end(), rest.begin(), rest.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    int master = -1;
    const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (pid == 0) {
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
    wait_until_marked(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ASSERT_EQ(::write(master, "\x03", 1), 1);
    if (!patient) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(marked(), 2);
      ASSERT_EQ(::write(master, "\x03", 1), 1);
    }
    EXPECT_EQ(wait_for(pid), patient ? 7 : 130);
    ::close(master);
  }
}

TEST_F(GuardTest, Misuse) {
  const auto fails = [&](const std::vector<std::string>& args, const std::string& part) {
    const Outcome r = guard(args);
    EXPECT_EQ(r.code, 2);
    EXPECT_TRUE(contains(r.log, part)) << part << " in\n" << r.log;
  };
  fails({"--ram-limit-gb", "1"}, "PROGRAM is missing");
  fails(child({"exit", "0"}), "no limit is given");
  fails(child({"exit", "0"}, {"--ram-limit-gb", "0"}), "'0' is out of range: expected > 0");
  fails(child({"exit", "0"}, {"--ram-limit-gb", "-1"}), "out of range");
  fails(child({"exit", "0"}, {"--ram-limit-gb", "much"}), "'much'");
  fails(child({"exit", "0"}, {"--ram-limit-gb", "1", "--over-secs", "-1"}), "--over-secs");
  fails(child({"exit", "0"}, {"--gpu-limit-gb", "1"}), "there is no nvidia-smi in PATH");
  fails({"--ram-limit-gb", "1", "/no/such/program"}, "cannot run '/no/such/program': No such file");
  fails({"--ram-limit-gb", "1", "/"}, "cannot run '/': Permission denied");
  fails(child({"exit", "0"}, {"--ram-limit-gb", "1", "--poll-secs", "1"}), "given twice");
}

TEST_F(GuardTest, ShortestPoll) {
  const Outcome r = guard(child({"exit", "0"}, {"--ram-limit-gb", "1"}), "0.001");
  EXPECT_TRUE(contains(r.log, "poll=0.05s")) << r.log;
  EXPECT_EQ(guard(child({"exit", "0"}, {"--ram-limit-gb", "1"}), "0").code, 2);
}

// A stand-in for nvidia-smi: says what the files beside it say.
class GuardWithGpu : public GuardTest {
 protected:
  void SetUp() override {
    say("#!/bin/sh\n"
        "d=${0%/*}\n"
        "case \"$1\" in\n"
        "  --query-compute-apps=*) while read -r l; do echo \"$l\"; done < $d/apps;;\n"
        "  --query-gpu=*) while read -r l; do echo \"$l\"; done < $d/used;;\n"
        "  *) while read -r l; do echo \"$l\"; done < $d/table;;\n"
        "esac\n",
        "nvidia-smi");
    ::chmod(dir_.file("nvidia-smi").c_str(), 0755);
    say("", "apps");
    say("0\n", "used");
    say("", "table");
  }
  void say(const std::string& text, const std::string& file) {
    replace_file(dir_.file(file), text);
  }
  TemporaryDirectory dir_{"smi"};
  SetVariable path_{"PATH", dir_.path().string()};
};

TEST_F(GuardWithGpu, TotalMemoryOfTheGpu) {
  say("1\n3000\n", "used");  // two GPUs
  const Outcome below = guard(child({"hold", "1", "0.3"}, {"--gpu-limit-gb", "3"}));
  EXPECT_EQ(below.code, 0) << below.log;
  EXPECT_TRUE(contains(below.log, "[guard] limit=3GB (3072MiB), over=0s, poll=0.05s")) << below.log;
  EXPECT_TRUE(contains(below.log, "total_gpu_mem=3001MiB")) << below.log;
  const Outcome above = guard(child({"hold", "1", "60"}, {"-l", "2.5"}));
  EXPECT_EQ(above.code, 124) << above.log;
  EXPECT_TRUE(contains(above.log,
                       "[guard] GPU memory limit exceeded (immediate mode): pid_mem=0MiB "
                       "total_mem=3001MiB limit=2560MiB. killing PID="))
      << above.log;
}

TEST_F(GuardWithGpu, LimitsFromTheEnvironment) {
  say("3000\n", "used");
  const auto run = [&] { return guard(child({"hold", "1", "0.4"})); };
  {
    const SetVariable limit("GPU_LIMIT_GB", "2");
    EXPECT_EQ(run().code, 124);
    const SetVariable over("GPU_OVER_SECS", "30");
    const Outcome r = run();
    EXPECT_EQ(r.code, 0);
    EXPECT_TRUE(contains(r.log, "limit=2GB (2048MiB), over=30s")) << r.log;
    // The command line wins.
    EXPECT_EQ(guard(child({"hold", "1", "60"}, {"--gpu-over-secs", "0"})).code, 124);
    EXPECT_EQ(guard(child({"hold", "1", "0.2"}, {"--gpu-limit-gb", "4"})).code, 0);
  }
  for (const char* wrong : {"0", "-1", "many"}) {
    const SetVariable limit("GPU_LIMIT_GB", wrong);
    const Outcome r = run();
    EXPECT_EQ(r.code, 2);
    EXPECT_TRUE(contains(r.log, std::string("GPU_LIMIT_GB=") + wrong)) << r.log;
  }
  const SetVariable poll("GPU_POLL_SECS", "0.25");
  testing::internal::CaptureStderr();
  std::ostringstream out, err;
  const int code = run_cli({"guard", "-l", "4", kGuardChild, "exit", "0"}, out, err);
  EXPECT_EQ(code, 0) << err.str();
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "poll=0.25s"));
}

TEST_F(GuardWithGpu, UnreadableIsAnError) {
  say("No devices were found\n", "used");
  EXPECT_EQ(guard(child({"exit", "0"}, {"--gpu-limit-gb", "4"})).code, 2);
  const Outcome r = guard(child({"exit", "0"}, {"--ram-limit-gb", "4"}));
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(contains(r.log, "nvidia-smi gives no numbers")) << r.log;
}

TEST_F(GuardWithGpu, ReadingThroughTheProgram) {
  say("7, 100\n8, 20\n", "apps");
  say("130\n", "used");
  const auto r = read_gpu_memory(find_nvidia_smi(), std::chrono::seconds(10));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->total_mib, 130);
  const std::vector<pid_t> pids = {8, 9};
  EXPECT_EQ(r->mib_of(pids), 20);
  say("[N/A]\n", "used");
  EXPECT_FALSE(read_gpu_memory(find_nvidia_smi(), std::chrono::seconds(10)));
  say("| Processes: |\n|  0 N/A N/A 8 C python 77MiB |\n", "table");
  const auto t = read_gpu_memory(find_nvidia_smi(), std::chrono::seconds(10));
  ASSERT_TRUE(t);
  EXPECT_EQ(t->total_mib, 77);
  EXPECT_EQ(t->mib_of(pids), 77);
}

// Printed by driver 580 for an H200.
constexpr const char* kTable = R"(Sun Nov 15 12:29:01 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |
| N/A   40C    P0             87W /  700W |    5647MiB / 143771MiB |      1%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A             440      C   python3                                5638MiB |
+-----------------------------------------------------------------------------------------+
)";

TEST(GpuMemory, Table) {
  const auto r = parse_smi_table(kTable);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->total_mib, 5647);
  ASSERT_EQ(r->processes.size(), 1u);
  EXPECT_EQ(r->processes[0].pid, 440);
  EXPECT_EQ(r->processes[0].mib, 5638);
  // Unified memory: no figure for the GPU, only for the processes; an older layout, too.
  const auto unified = parse_smi_table(
      "| N/A   40C    P0    9W /  N/A  |      Not Supported |   0%   Default |\n"
      "| Processes:  |\n"
      "|    0   N/A  N/A   1234   C+G   /a program/with C words   12MiB |\n"
      "|    0       77      G   /usr/lib/xorg/Xorg   5MiB |\n");
  ASSERT_TRUE(unified);
  EXPECT_EQ(unified->total_mib, 17);
  ASSERT_EQ(unified->processes.size(), 2u);
  EXPECT_EQ(unified->processes[0].pid, 1234);
  EXPECT_EQ(unified->processes[1].pid, 77);
  EXPECT_FALSE(parse_smi_table("NVIDIA-SMI has failed because it couldn't communicate\n"));
  EXPECT_FALSE(parse_smi_table(""));
}

TEST(GpuMemory, Queries) {
  const auto apps = parse_compute_apps("440, 5638\n441, 12\n");
  ASSERT_TRUE(apps);
  EXPECT_EQ(apps->size(), 2u);
  EXPECT_EQ(apps->at(1).pid, 441);
  EXPECT_EQ(apps->at(1).mib, 12);
  EXPECT_TRUE(parse_compute_apps("")->empty());
  EXPECT_FALSE(parse_compute_apps("440, [N/A]\n"));
  EXPECT_FALSE(parse_compute_apps("No devices were found\n"));
  EXPECT_EQ(parse_memory_used("5647\n 3 \n"), 5650);
  EXPECT_FALSE(parse_memory_used("[N/A]\n"));
  EXPECT_FALSE(parse_memory_used(""));
  EXPECT_FALSE(parse_memory_used("-3\n"));
  // Their sum would leave 64 bits.
  EXPECT_FALSE(parse_memory_used("5311111311111311111\n5311121933387044981\n"));
}

TEST(ProcessTree, ReadsProcesses) {
  const auto self = read_process(::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_TRUE(self->alive());
  EXPECT_GT(self->start_ticks, 0u);
  EXPECT_FALSE(read_process(0x7fffffff));
  const std::vector<ProcessInfo> only = {*self};
  EXPECT_GT(resident_bytes(only), 1u << 20);
  EXPECT_LE(proportional_bytes(only), resident_bytes(only) + (4u << 20));
  EXPECT_GT(proportional_bytes(only), 1u << 20);
}

TEST(ProcessTree, ASignalForAnotherIncarnationIsNotSent) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    std::_Exit(0);
  }
  ProcessInfo p = *read_process(pid);
  ++p.start_ticks;
  send_signal(p, SIGKILL);
  ::usleep(50000);
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0);
  --p.start_ticks;
  send_signal(p, SIGKILL);
  EXPECT_EQ(wait_for(pid), 1000 + SIGKILL);
}

}  // namespace
}  // namespace nibble::test
