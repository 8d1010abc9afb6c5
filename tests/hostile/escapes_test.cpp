// SPDX-License-Identifier: MIT
// What acts on terminals, from models and files: spelled out where people read, untouched in pipes.
#include <pty.h>

#include "core/json.h"
#include "hostile/program.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

// Title, colour, a cursor that goes up, a C1 control, an override of direction.
const std::string kEvil =
    "\x1b]0;owned\x07\x1b[31mred\x1b[2A\xc2\x9b"
    "5m\xe2\x80\xae!";
const std::string kSpelled = "\\x1b]0;owned\\x07\\x1b[31mred\\x1b[2A\\x9b5m\\u202e!";

bool acts(const std::string& text) {
  return contains(text, "\x1b") || contains(text, "\x07") || contains(text, "\xc2\x9b") ||
         contains(text, "\xe2\x80\xae");
}

class Escapes : public HostileTest {
 protected:
  // What a terminal would get.
  static std::string on_terminal(const Words& words) {
    int master = -1;
    Words all = {kNibblePath, "--quiet"};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& w : all) argv.push_back(w.data());
    argv.push_back(nullptr);
    const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (pid == 0) {
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(master, buffer, sizeof buffer)) > 0;)
      text.append(buffer, size_t(n));
    ::close(master);
    ::waitpid(pid, nullptr, 0);
    return text;
  }
};

// --echo prints the prompt as the tokenizer gives it back: text of unknown origin like a reply.
TEST_F(Escapes, OfTextAreSpelledOutOnATerminalOnly) {
  const Words words = {"generate", "--model", model(),  "--raw",        "--plain",
                       "--prompt", kEvil,     "--echo", "--max-tokens", "1"};
  const std::string shown = on_terminal(words);
  EXPECT_TRUE(contains(shown, kSpelled)) << shown;
  EXPECT_FALSE(acts(shown));
  const Ended piped = run_program(words);
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_TRUE(piped.out.starts_with(kEvil));
}

TEST_F(Escapes, TheChoiceHolds) {
  for (const char* command : {"generate", "chat"}) {
    Words words = {command, "--model", model(), "--prompt", "x", "--max-tokens",
                   "12",    "--seed",  "3",     "--temp",   "5", "--ignore-eos"};
    const Ended plain = run_program(words);
    words.insert(words.end(), {"--escapes", "visible"});
    const Ended visible = run_program(words);
    EXPECT_EQ(visible.code, 0) << visible.err;
    // The toy speaks in bytes, controls among them.
    EXPECT_NE(visible.out, plain.out);
    EXPECT_EQ(
        visible.out.find_first_of(std::string("\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x1b\x7f")),
        std::string::npos);
    words.back() = "raw";
    EXPECT_EQ(run_program(words).out, plain.out);
  }
  Words raw = {"generate", "--model", model(),        "--raw", "--plain",   "--prompt",
               kEvil,      "--echo",  "--max-tokens", "1",     "--escapes", "raw"};
  EXPECT_TRUE(contains(on_terminal(raw), kEvil));
}

TEST_F(Escapes, OfTensorNamesAndFileNames) {
  std::string header =
      nlohmann::json{{kEvil + "\nPROBLEM: forged",
                      {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}}
          .dump();
  const uint64_t n = header.size();
  std::string bytes(reinterpret_cast<const char*>(&n), sizeof n);
  const std::string named =
      write(kEvil.substr(0, 9) + ".safetensors", bytes + header + std::string("\0\0\0\0", 4));
  const Ended r = run_program({"inspect", named});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_FALSE(acts(r.out)) << r.out;
  EXPECT_FALSE(contains(r.out, "\nPROBLEM: forged")) << r.out;
  EXPECT_TRUE(contains(r.out, kSpelled)) << r.out;
  // In messages, too.
  for (const Words& words :
       {Words{"inspect", file(kEvil)}, Words{"generate", "--model", named, "--prompt", "x"},
        Words{"--verbose", "convert", named, file("x.dat"), "--quant", "none"}}) {
    EXPECT_FALSE(acts(run_program(words).err)) << words[0];
  }
}

TEST_F(Escapes, OfRecords) {
  ASSERT_EQ(run_program(train_words({"--steps", "1"})).code, 0);
  const std::string evil =
      kEvil + "\n\n# Injected\n\n- **State**: fine\n\n<script>alert(1)</script>";
  for (const char* name : {"status.json", "run.json"}) {
    auto j =
        parse_json<nlohmann::ordered_json>(read_text_file(file(std::string("runs/run/") + name)));
    for (const char* key : {"message", "command", "command_line", "started_utc", "device",
                            "version", "directory", "output"}) {
      if (j.contains(key)) j[key] = evil;
    }
    if (j.contains("files")) {
      for (auto& f : j["files"]) f["role"] = f["path"] = evil;
    }
    write(std::string("runs/run/") + name, j.dump());
  }
  for (const Words& words :
       {Words{"list"}, Words{"show", "run"}, Words{"watch", "run", "--once"},
        Words{"lineage", "run"}, Words{"compare", "run", "run"}, Words{"export", "--markdown"}}) {
    Words all = {"runs"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--runs-dir", file("runs")});
    const Ended r = run_program(all);
    EXPECT_FALSE(acts(r.out)) << words[0] << r.out;
    EXPECT_FALSE(contains(r.out, "\n# Injected")) << words[0] << r.out;
    EXPECT_FALSE(contains(r.out, "\n- **State**: fine")) << words[0];
    if (words[0] == "export") {
      EXPECT_FALSE(contains(r.out, "\n<script>")) << r.out;
      EXPECT_TRUE(contains(r.out, "\\<script\\>")) << r.out;
    }
  }
}

}  // namespace
}  // namespace nibble::test
