// SPDX-License-Identifier: MIT
// Files that are not what they seem: companions that are links, headers with something before them.
#include "hostile/program.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class HostileFiles : public HostileTest {
 protected:
  Ended convert(const std::string& from, const std::string& to) {
    return run_program({"convert", from, to, "--quant", "none"});
  }
};

// A model from elsewhere could carry any file of this machine along.
TEST_F(HostileFiles, CompanionsThatLeadOutAreNotCopied) {
  const std::string secret = write("secret/key", "{\"private\": true}");
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "vocab.json"}) {
    const std::string m = copy_of_model(std::string("m-") + name);
    fs::remove(fs::path(m) / name);
    fs::create_symlink(secret, fs::path(m) / name);
    // Beside the weights, or inside of the file.
    for (const char* ending : {"", ".gguf"}) {
      const std::string out = file("out-" + fs::path(name).stem().string() + ending);
      const Ended r = convert(m, out);
      EXPECT_EQ(r.code, 3) << r.err;
      EXPECT_TRUE(contains(r.err, name) && contains(r.err, "outside of the model's directory"))
          << r.err;
      EXPECT_FALSE(fs::exists(out)) << "refused before anything was written";
    }
  }
}

TEST_F(HostileFiles, LinksWithinAndOfACacheAreFollowed) {
  // models--x/snapshots/main/* -> ../../blobs/*, as huggingface_hub lays them out.
  const fs::path cache = file("models--x"), snapshot = cache / "snapshots/main";
  fs::create_directories(cache / "blobs");
  fs::create_directories(snapshot);
  int n = 0;
  for (const auto& entry : fs::directory_iterator(model())) {
    const std::string blob = "blob" + std::to_string(++n);
    fs::copy(entry.path(), cache / "blobs" / blob);
    fs::create_symlink(fs::path("../../blobs") / blob, snapshot / entry.path().filename());
  }
  const Ended r = convert(snapshot.string(), file("out"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(fs::exists(file("out/tokenizer.json")));
  // And a link to a neighbour.
  const std::string m = copy_of_model("m");
  fs::rename(fs::path(m) / "tokenizer.json", fs::path(m) / "real.json");
  fs::create_symlink("real.json", fs::path(m) / "tokenizer.json");
  const Ended near = convert(m, file("near"));
  EXPECT_EQ(near.code, 0) << near.err;
  EXPECT_TRUE(read_text_file(file("near/tokenizer.json")) ==
              read_text_file(fs::path(m) / "real.json"));
}

TEST_F(HostileFiles, AHeaderBeginsWithABrace) {
  for (const std::string before : {" ", "\n", "\xef\xbb\xbf"}) {
    const std::string header = before + "{}";
    const uint64_t n = header.size();
    const std::string bytes(reinterpret_cast<const char*>(&n), sizeof n);
    const Ended r = run_program({"inspect", write("x.safetensors", bytes + header)});
    EXPECT_EQ(r.code, 3) << r.out;
    EXPECT_TRUE(contains(r.err, "does not begin with '{'")) << r.err;
  }
}

}  // namespace
}  // namespace nibble::test
