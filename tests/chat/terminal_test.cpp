// SPDX-License-Identifier: MIT
// The chat at a pseudo-terminal: keys go in as a terminal sends them; what was asked of the model
// is read from the log it writes.
#include <poll.h>
#include <pty.h>

#include "chat/emulated_screen.h"
#include "core/json.h"
#include "hostile/program.h"

namespace nibble::test {
namespace {

class AtTerminal : public HostileTest {
 protected:
  void TearDown() override {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    if (master_ >= 0) ::close(master_);
  }
  void start(const Words& more = {}, const char* term = "xterm") {
    Words words = before_;
    words.insert(words.end(), {kNibblePath, "--quiet", "chat", "--model", model_, "--threads", "1",
                               "--force", "--tee-jsonl", file("log"), "--max-tokens", max_tokens_,
                               "--input-history", file("history")});
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    winsize size{24, 40, 0, 0};
    pid_ = ::forkpty(&master_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::setenv("TERM", term, 1);
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
    ended_ = false;
    prompt();
  }
  // Reads until the text has come since the last wait; the time is for machines under load.
  bool wait_for(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      if (const size_t at = seen_.find(text); at != std::string::npos) {
        seen_before_ = seen_.substr(0, at);
        seen_.erase(0, at + text.size());
        return true;
      }
      if (!read_some(100) && ended_) return false;
    }
    ADD_FAILURE() << "no " << text << " in " << seen_;
    return false;
  }
  bool read_some(int ms) {
    pollfd p{master_, POLLIN, 0};
    if (::poll(&p, 1, ms) <= 0) return false;
    char buffer[65536];
    const ssize_t n = ::read(master_, buffer, sizeof buffer);
    if (n <= 0) return ended_ = true, false;
    seen_.append(buffer, size_t(n));
    if (emulated_) screen_.write({buffer, size_t(n)});
    return true;
  }
  void prompt() { ASSERT_TRUE(wait_for("> ")); }
  void send(std::string_view keys) {
    while (!keys.empty()) {  // reading meanwhile: a terminal's buffers are small
      pollfd p{master_, POLLOUT, 0};
      if (::poll(&p, 1, 100) > 0) {
        const ssize_t n = ::write(master_, keys.data(), std::min<size_t>(keys.size(), 1000));
        if (n > 0) keys.remove_prefix(size_t(n));
      }
      read_some(0);
    }
  }
  // Until the last row of the screen is that.
  void see(const std::string& row) {
    for (int i = 0; i < 600 && screen_.last_row() != row; ++i) read_some(100);
    EXPECT_EQ(screen_.last_row(), row);
  }
  // From here on Ctrl+C is a signal, and something was said, so that the turn is not taken back.
  void wait_for_reply() {
    ASSERT_TRUE(wait_for("\x1b[?2004h"));
    for (int i = 0; i < 600 && seen_.empty(); ++i) read_some(100);
  }
  // A model whose replies would take minutes.
  void start_with_long_replies(const Words& more = {}) {
    Config c = toy_chat_config();
    c.max_positions = 1 << 17;
    write_toy_directory(dir_.path() / "long", c);
    model_ = file("long");
    max_tokens_ = "100000";
    Words words = {"--ignore-eos", "--context", "100000"};
    words.insert(words.end(), more.begin(), more.end());
    emulated_ = false;  // what such a model says is nothing for it
    start(words);
    send("hello\r");
    ASSERT_TRUE(wait_for("hello\r"));
    wait_for_reply();
  }
  bool is_as_before() {
    termios now{};
    ::tcgetattr(master_, &now);
    const tcflag_t wanted = ICANON | ECHO | ISIG | IEXTEN;
    return (now.c_lflag & wanted) == wanted && (now.c_iflag & ICRNL) != 0;
  }
  // What was asked, once `n` turns are in the log.
  Words asked(size_t n) {
    Words all;
    for (int i = 0; i < 600 && all.size() < n; ++i) {
      all.clear();
      std::error_code ec;
      const std::string text =
          std::filesystem::exists(file("log"), ec) ? read_text_file(file("log")) : "";
      for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        const auto j = parse_json<nlohmann::ordered_json>(text.substr(at, end - at));
        all.push_back(j.at("messages").back().at("text").get<std::string>());
      }
      if (all.size() < n) read_some(100);
    }
    return all;
  }
  int leave(std::string_view keys = "\x04") {
    send(keys);
    for (int i = 0; i < 600 && !ended_; ++i) read_some(100);
    if (!ended_) ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::string model_ = model(), max_tokens_ = "2";
  Words before_;  // what runs the program
  pid_t pid_ = -1;
  int master_ = -1;
  bool ended_ = false;
  std::string seen_, seen_before_;  // since the last wait; what came before its text
  EmulatedScreen screen_{24, 40};
  bool emulated_ = true;
};

TEST_F(AtTerminal, ArrowsAndBackspaceOverWideCharacters) {
  start();
  send("ac\x1b[Db\x1b[C!\r");
  send("你好嗎👨‍👩‍👧\x7f\x7f們\r");
  send("x\x01y\x05z\x1b[1;5Dw\r");
  EXPECT_EQ(asked(3), (Words{"abc!", "你好們", "wyxz"}));
  EXPECT_EQ(leave(), 0);
}

TEST_F(AtTerminal, APasteIsOneTurnAndNothingIsCut) {
  std::string paste;
  for (int i = 0; i < 20000; ++i) paste += i % 80 == 79 ? "\n" : i % 2 ? "字" : "a";
  std::string sent = paste;
  std::replace(sent.begin(), sent.end(), '\n', '\r');
  // Running it would take the test long: the context refuses it and says how much it was.
  start();
  send("\x1b[200~" + sent + "\x1b[201~\r");
  ASSERT_TRUE(wait_for("error: the context is full: 0 tokens are in it, "));
  ASSERT_TRUE(wait_for("> "));
  EXPECT_GE(std::stoi(seen_before_), 20000);
  send("short\r");
  EXPECT_EQ(asked(1), Words{"short"});
  EXPECT_EQ(leave(), 0);
  std::string line = read_text_file(file("history"));
  for (size_t at = 0; (at = line.find("\\n", at)) != std::string::npos; ++at)
    line.replace(at, 2, "\n");
  EXPECT_EQ(line, paste + "\nshort\n");
}

TEST_F(AtTerminal, ControlCClearsAndASecondLeaves) {
  start();
  send("wrong\x03right\r");
  EXPECT_EQ(asked(1), Words{"right"});
  send("/stats\r");
  EXPECT_TRUE(wait_for("tokens in the conversation"));
  prompt();
  send("\x03");
  EXPECT_TRUE(wait_for("Ctrl+C once more"));
  EXPECT_EQ(leave("\x03"), 0);
}

TEST_F(AtTerminal, ControlCEndsAReplyNotTheProgram) {
  start_with_long_replies();
  send("\x03");
  EXPECT_EQ(asked(1), Words{"hello"});
  send("/exit\r");
  EXPECT_EQ(leave(""), 0);
}

TEST_F(AtTerminal, CommandsAreAnsweredAndNotAsked) {
  start();
  for (const auto& [typed, answer] : std::vector<std::pair<std::string, std::string>>{
           {"/help", "//text"},
           {"/temp 0.5", "temperature 0.5"},
           {"/tmep 0.5", "did you mean /temp?"},
           {"/system be brief", "system message: be brief"},
           {"/undo", "nothing to take back"},
           {"/regen", "no question"},
           {"/load " + file("absent"), "error: "},
           {"/reset", "history reset"},
           {"/stats", "tokens in the conversation"}}) {
    send(typed + "\r");
    EXPECT_TRUE(wait_for(answer)) << typed;
  }
  send("hi\r");
  EXPECT_EQ(asked(1), Words{"hi"});
  send("/save " + file("s.chat") + "\r");
  EXPECT_TRUE(wait_for("saved 3 messages"));
  send("/load " + file("s.chat") + "\r");
  EXPECT_TRUE(wait_for("loaded 3 messages"));
  send("/exit\r");
  EXPECT_EQ(leave(""), 0);
}

TEST_F(AtTerminal, TabCompletesAndBlocksGoOn) {
  start();
  send("/st\t\r");
  EXPECT_TRUE(wait_for("tokens in the conversation"));
  send("/re\t\t");
  EXPECT_TRUE(wait_for("/reset  /regen"));
  send("\x15\"\"\"one\r\rtwo\"\"\"\r");
  send("a\x1b\rb\r");
  EXPECT_EQ(asked(2), (Words{"one\n\ntwo", "a\nb"}));
  EXPECT_EQ(leave(), 0);
}

TEST_F(AtTerminal, HistoryBetweenSittings) {
  start();
  send("first\rsecond\r");
  EXPECT_EQ(asked(2).size(), 2u);
  EXPECT_EQ(leave(), 0);
  ::close(master_);
  ended_ = false;
  seen_.clear();
  start();
  send(
      "\x1b[A\x1b[A!\r\x12"
      "sec\r\r");
  const Words all = asked(4);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2], "first!");
  EXPECT_EQ(all[3], "second");
  EXPECT_EQ(leave(), 0);
}

TEST_F(AtTerminal, ADumbTerminalGetsNoSequences) {
  start({}, "dumb");
  seen_.clear();
  send("hellx\x7fo\r");
  EXPECT_EQ(asked(1), Words{"hello"});
  send("/stats\r");
  EXPECT_TRUE(wait_for("tokens in the conversation"));
  EXPECT_EQ(seen_.find('\x1b'), std::string::npos);
  EXPECT_EQ(leave(), 0);
}

TEST_F(AtTerminal, TheTerminalIsAsItWas) {
  const auto ends = [&](const char* how, int code, const std::function<void()>& end) {
    start();
    EXPECT_FALSE(is_as_before()) << how;
    end();
    EXPECT_TRUE(wait_for("\x1b[?2004l")) << how;
    EXPECT_TRUE(is_as_before()) << how;
    EXPECT_EQ(leave(""), code) << how;
    ::close(master_);
    seen_.clear();
  };
  ends("/exit", 0, [&] { send("/exit\r"); });
  ends("Ctrl+D", 0, [&] { send("\x04"); });
  ends("Ctrl+C twice", 0, [&] { send("\x03\x03"); });
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ends("a signal", 1000 + signal, [&] { ::kill(pid_, signal); });
  }
  master_ = -1;
}

TEST_F(AtTerminal, TheTerminalIsAsItWasAfterAReplyIsKilled) {
  start_with_long_replies();
  EXPECT_FALSE(is_as_before());
  send("\x03");
  EXPECT_EQ(asked(1), Words{"hello"});
  send("again\r");
  ASSERT_TRUE(wait_for("again\r"));
  wait_for_reply();
  ::kill(pid_, SIGTERM);
  for (int i = 0; i < 600 && !ended_; ++i) read_some(100);
  EXPECT_TRUE(is_as_before());
}

// The shell that the person is back in shows what is typed; after fg all is as before.
TEST_F(AtTerminal, WhileItIsStoppedTheTerminalIsAsItWas) {
  before_ = {"/bin/sh", "-mc", "\"$@\"; stty -a; echo [stopped]; fg", "sh"};
  const auto stopped = [&] {
    send("\x1a");
    ASSERT_TRUE(wait_for("[stopped]"));
    EXPECT_TRUE(contains(seen_before_, " icanon"));
    EXPECT_TRUE(contains(seen_before_, " echo "));
  };
  emulated_ = false;
  start();
  send("hi");
  ASSERT_TRUE(wait_for("hi"));
  stopped();
  ASSERT_TRUE(wait_for("> hi"));
  send(" there\r");
  EXPECT_EQ(asked(1), Words{"hi there"});
  EXPECT_EQ(leave(), 0);
  ::close(master_);
  seen_.clear();
  std::filesystem::remove(file("log"));
  start_with_long_replies();
  stopped();
  ASSERT_TRUE(wait_for("\x1b[?2004h"));
  EXPECT_FALSE(is_as_before());
  send("\x03");
  EXPECT_EQ(asked(1), Words{"hello"});
  send("/exit\r");
  EXPECT_EQ(leave(""), 0);
}

TEST_F(AtTerminal, TheScreenShowsWhatThereIs) {
  start();
  send("你好嗎\x1b[D\x1b[D\x7f");
  see("> 好嗎");
  EXPECT_EQ(screen_.cursor_column(), 2u);
  send("\x05👍🏽e\u0301");  // a colour that this terminal shows beside it
  see("> 好嗎👍🏽e\u0301");
  send("\x7f\x7f!");
  see("> 好嗎!");
  // 24 wide characters do not fit in a row of 40, of which one column stays free.
  send("\x15");
  std::string wide;
  for (int i = 0; i < 24; ++i) wide += "字";
  send(wide);
  see(wide.substr(0, size_t(6) * 3));
  const size_t row = screen_.cursor_row();
  EXPECT_EQ(screen_.row(row - 1), "> " + wide.substr(0, size_t(18) * 3));
  EXPECT_EQ(screen_.cursor_column(), 12u);
  send("\x1b[A");
  send("甲");  // above: the rows after it move on
  see(wide.substr(0, size_t(7) * 3));
  EXPECT_EQ(screen_.cursor_row(), row - 1);
  send("\x05");
  for (int i = 0; i < 24; ++i) send("\x7f");
  see("> 字");
  EXPECT_EQ(screen_.cursor_row(), row - 1);
  send("\x03");
  see(">");
  EXPECT_EQ(screen_.row(screen_.cursor_row() - 1), "> 字^C");
  EXPECT_EQ(leave(), 0);
}

TEST_F(AtTerminal, ALongPasteIsOnTheScreenWholeOnceItIsSent) {
  start();
  std::string paste, rows;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = "第" + std::to_string(i) + "行 👍 of a paste";
    paste += line + (i < 999 ? "\r" : "");
    rows += (i == 0 ? "> " : "  ") + line + "\n";
  }
  ASSERT_GT(paste.size(), 20000u);
  send("\x1b[200~" + paste + "\x1b[201~");
  see("  第999行 👍 of a paste");
  send("\r");
  ASSERT_TRUE(wait_for("error: "));
  EXPECT_TRUE(contains(screen_.everything(), rows));
  EXPECT_EQ(leave(), 0);
}

// A terminal that is made narrower breaks the rows; they are drawn anew from where they begin.
TEST_F(AtTerminal, AResizeIsFollowed) {
  emulated_ = false;
  start();
  std::string wide;
  for (int i = 0; i < 24; ++i) wide += "字";
  send(wide);
  ASSERT_TRUE(wait_for(wide.substr(0, size_t(6) * 3) + "\x1b[K"));
  while (read_some(200)) continue;
  seen_.clear();
  // The first row of 2 + 36 columns stands in three rows of 17 now (a wide character is not
  // broken), the cursor's of 12 in one.
  winsize size{24, 17, 0, 0};
  ::ioctl(master_, TIOCSWINSZ, &size);
  EXPECT_TRUE(wait_for("\r\x1b[3A\x1b[J> " + wide.substr(0, size_t(7) * 3) + "\x1b[K\r"));
  EXPECT_EQ(leave("\x15/exit\r"), 0);
}

TEST_F(AtTerminal, BytesOfACharacterMayComeLate) {
  start();
  for (const char* part : {"\xe4", "\xbd", "\xa0", "\x1b[", "D", "a"}) {
    send(part);
    while (read_some(part[0] == '\x1b' ? 5 : 120)) continue;
  }
  send("\r");
  EXPECT_EQ(asked(1), Words{"a你"});
  EXPECT_EQ(leave(), 0);
}

TEST_F(AtTerminal, WhatIsPastedDuringAReplyWaitsWhole) {
  start_with_long_replies();
  std::string paste;
  for (int i = 0; i < 1000; ++i) paste += i % 50 == 49 ? "\n" : "字";
  std::string sent = paste;
  std::replace(sent.begin(), sent.end(), '\n', '\r');
  send("\x1b[200~" + sent + "\x1b[201~\x03");
  EXPECT_EQ(asked(1), Words{"hello"});
  send("\r");
  ASSERT_TRUE(wait_for("字\r"));
  wait_for_reply();
  send("\x03");
  EXPECT_EQ(asked(2).back(), paste);
}

}  // namespace
}  // namespace nibble::test
