// SPDX-License-Identifier: MIT
// Streams that are closed, full, or without a reader.
#include <sys/resource.h>
#include <sys/stat.h>

#include "hostile/program.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Streams : public HostileTest {
 protected:
  static Words generate(const Words& more) {
    Words words = {"generate", "--model", model(), "--kv-dtype", "fp32", "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

// Without all three the next file opened would be standard output or standard error.
TEST_F(Streams, ClosedDescriptorsAreNotTakenByFiles) {
  const Words convert = {"--verbose", "convert", model(), "", "--quant", "nvfp4"};
  Words open = convert;
  open[3] = file("open.dat");
  ASSERT_EQ(run_program(open).code, 0);
  for (int closed = 1; closed < 8; ++closed) {
    Words words = convert;
    words[3] = file("closed" + std::to_string(closed) + "/x.dat");
    const Ended r = run_program(words, [closed] {
      for (int fd = 0; fd <= 2; ++fd) {
        if (closed & (1 << fd)) ::close(fd);
      }
    });
    EXPECT_EQ(r.code, 0) << closed << ": " << r.err;
    EXPECT_TRUE(read_text_file(words[3]) == read_text_file(open[3])) << closed;
  }
}

TEST_F(Streams, AClosedInputIsAnEmptyPrompt) {
  const Ended null = run_program(generate({"--max-tokens", "3", "--print-ids"}));
  const Ended closed =
      run_program(generate({"--max-tokens", "3", "--print-ids"}), [] { ::close(0); });
  EXPECT_EQ(closed.code, 0) << closed.err;
  EXPECT_EQ(closed.out, null.out);
}

TEST_F(Streams, AnUnwritableStandardErrorChangesNothing) {
  for (const bool closed : {false, true}) {
    const Words words = train_words({"--steps", "3", "--save-every", "1", "--log-every", "1",
                                     "--run-name", closed ? "closed" : "full"});
    const Ended r = run_program(words, [closed] {
      if (closed)
        ::close(2);
      else
        Program::redirect("/dev/full", O_WRONLY, 2);
    });
    EXPECT_EQ(r.code, 0);
    EXPECT_TRUE(fs::exists(file(closed ? "runs/closed/model" : "runs/full/model")));
  }
}

TEST_F(Streams, AFullStandardOutputIsAFileError) {
  for (const Words& words :
       {Words{"--version"}, generate({"--prompt", "x", "--max-tokens", "9"})}) {
    const Ended r = run_program(words, [] { Program::redirect("/dev/full", O_WRONLY, 1); });
    EXPECT_EQ(r.code, 3) << words[0];
    EXPECT_TRUE(contains(r.err, "cannot write to standard output: No space left")) << r.err;
  }
}

// A reader that left: as SIGPIPE would have it, and at once.
TEST_F(Streams, AReaderThatLeftStopsTheReply) {
  for (const Words& words :
       {generate({"--prompt", "x", "--max-tokens", "4000", "--ignore-eos", "--context", "8000"}),
        Words{"chat", "--model", model(), "--prompt", "x", "--turns", "3000", "--max-tokens", "2",
              "--ignore-eos"}}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    Program program(words, [&] { ::dup2(ends[1], 1); });
    ::close(ends[1]);
    char c = 0;
    ASSERT_EQ(::read(ends[0], &c, 1), 1);  // the reply has begun
    ::close(ends[0]);
    const auto start = std::chrono::steady_clock::now();
    const Ended r = program.wait();
    EXPECT_EQ(r.code, 141) << r.err;
    EXPECT_EQ(r.err.find("error"), std::string::npos) << r.err;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

TEST_F(Streams, ADirectoryAsInputIsAFileError) {
  const auto directory = [] { Program::redirect("/", O_RDONLY | O_DIRECTORY, 0); };
  for (const Words& words :
       {generate({}), Words{"tokenize", "--model", model()}, Words{"chat", "--model", model()}}) {
    const Ended r = run_program(words, directory);
    EXPECT_EQ(r.code, 3) << words[0] << r.err;
    EXPECT_TRUE(contains(r.err, "cannot read standard input")) << r.err;
  }
}

// A stack that no address space holds: no thread can be started.
TEST_F(Streams, AThreadThatCannotStartIsADeviceError) {
  const auto no_threads = [] {
    const rlimit limit{rlim_t(1) << 47, RLIM_INFINITY};
    ::setrlimit(RLIMIT_STACK, &limit);
  };
  for (const char* threads : {"1", "3"}) {
    const Ended r = run_program(
        {"generate", "--model", model(), "--prompt", "x", "--threads", threads}, no_threads);
    EXPECT_EQ(r.code, 4) << r.err;
    EXPECT_TRUE(contains(r.err, "thread")) << r.err;
  }
}

TEST_F(Streams, AFileSizeLimitIsAnErrorAndNotADeath) {
  const Ended r = run_program({"convert", model(), file("out"), "--quant", "none"}, [] {
    const rlimit limit{10'000, 10'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  });
  EXPECT_EQ(r.code, 3) << r.err;
  EXPECT_TRUE(contains(r.err, "File too large")) << r.err;
  EXPECT_FALSE(fs::exists(file("out/model.safetensors")));
}

// Nobody will ever write into it, and open() would wait for ever.
TEST_F(Streams, PipesAndDevicesAsFilesAreRefusedAtOnce) {
  const std::string pipe = file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0644), 0);
  for (const std::string& named : {pipe, std::string("/dev/zero"), std::string("/dev/null")}) {
    for (const Words& words :
         {Words{"generate", "--model", model(), "--prompt-file", named},
          Words{"generate", "--model", named, "--prompt", "x"},
          Words{"generate", "--model", model(), "--prompt", "x", "--config", named},
          Words{"generate", "--model", model(), "--prompt", "x", "--tokenizer", named},
          Words{"generate", "--model", model(), "--prompt", "x", "--tools", named},
          Words{"chat", "--model", model(), "--replay", named},
          Words{"chat", "--model", model(), "--script", named},
          Words{"check", "--model", model(), "--probes", named},
          Words{"convert", named, file("out.dat"), "--quant", "none"}, Words{"inspect", named},
          Words{"init", "--run-config", named},
          Words{"tokenize", "--model", model(), "--jsonl", named},
          Words{"tokenize", "--model", model(), "--file", named},
          Words{"render", "--template", named, "--jsonl", pairs()},
          Words{"render", "--template", pairs(), "--jsonl", named},
          train_words({"--train-data", named}), train_words({"--eval-data", named})}) {
      Program program(words);
      const auto start = std::chrono::steady_clock::now();
      EXPECT_FALSE(program.runs_until([&] {
        return std::chrono::steady_clock::now() - start > std::chrono::seconds(20);
      })) << words[0]
          << " waits for " << named;
      if (program.running()) continue;
      const Ended r = program.wait();
      EXPECT_TRUE(r.code == 3 || r.code == 2) << words[0] << " " << named << ": " << r.err;
    }
  }
}

}  // namespace
}  // namespace nibble::test
