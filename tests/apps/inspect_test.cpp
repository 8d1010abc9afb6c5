// SPDX-License-Identifier: MIT
// nibble inspect, option by option, on sound and on damaged files.
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli_run.h"
#include "formats/dat.h"

namespace nibble::test {
namespace {

using nlohmann::json;

class Inspect : public testing::Test {
 protected:
  void SetUp() override { cli_ok({"convert", golden("qwen3_tied"), dat_, "--quant", "nvfp4"}); }
  struct Entry {
    std::string name;
    int code;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::string write_dat(const std::vector<Entry>& entries) {
    std::vector<TensorInfo> infos;
    for (const Entry& e : entries) {
      TensorInfo info;
      info.name = e.name;
      info.dtype = *dat_code_dtype(uint64_t(e.code));
      info.shape = e.shape;
      info.dat_code = e.code;
      infos.push_back(info);
    }
    const std::string path = dir_.file("made.dat");
    DatWriter w(path, infos);
    for (const Entry& e : entries) w.append(std::as_bytes(std::span(e.bytes)));
    w.finish();
    return path;
  }
  // Must exit with 3 and print `part`.
  static void damaged(const std::vector<std::string>& args, const std::string& part) {
    const CliResult r = cli(args);
    EXPECT_EQ(r.code, 3) << r.out << r.err;
    EXPECT_TRUE(contains(r.out + r.err, part)) << r.out << r.err;
  }
  TemporaryDirectory dir_{"inspect"};
  std::string dat_ = dir_.file("x.dat");
};

TEST_F(Inspect, ListsEveryTensor) {
  const std::string out = cli_ok({"inspect", golden("predecessor/model-nvfp4.dat")});
  const auto source = open_tensor_source(golden("predecessor/model-nvfp4.dat"));
  const WeightIndex index(*source);
  for (const LogicalTensor& t : index.tensors()) EXPECT_TRUE(contains(out, t.name)) << t.name;
  EXPECT_TRUE(contains(out, "code 101"));
  EXPECT_TRUE(contains(out, "40 entries"));
  EXPECT_TRUE(contains(out, ": sound"));
  EXPECT_TRUE(contains(out, "tied"));
  EXPECT_TRUE(contains(out, "error ~"));
}

TEST_F(Inspect, Json) {
  const json j = json::parse(cli_ok({"inspect", dat_, "--json"}));
  EXPECT_EQ(j.at("entries"), 40);
  EXPECT_EQ(j.at("tensors").size(), 25u);
  EXPECT_EQ(j.at("damaged"), false);
  for (const json& t : j.at("tensors")) {
    const bool packed = t.at("stored").get<std::string>().starts_with("nvfp4");
    EXPECT_EQ(t.contains("error_relative_rms"), packed) << t;
    if (!packed) continue;
    // The head's is exact: the embedding is in the file. The others' are estimates.
    const bool head = t.at("name") == "lm_head.weight";
    EXPECT_EQ(t.at("error_basis"), head ? "embedding" : "estimate");
    EXPECT_NEAR(t.at("error_relative_rms").get<double>(), 0.09, 0.015) << t;
    EXPECT_GT(t.at("zero_codes").get<double>(), 0);
    EXPECT_LE(t.at("scale_min"), t.at("scale_max"));
  }
}

TEST_F(Inspect, AgainstTheSource) {
  const json j =
      json::parse(cli_ok({"inspect", dat_, "--json", "--against", golden("qwen3_tied")}));
  const auto exact_source = open_tensor_source(golden("qwen3_tied"));
  const auto source = open_tensor_source(dat_);
  const WeightIndex exact(*exact_source), index(*source);
  for (const json& t : j.at("tensors")) {
    const std::string name = t.at("name");
    const auto x = values(exact, exact.find(name) ? name : "model.embed_tokens.weight");
    const auto y = values(index, name);
    EXPECT_EQ(t.at("error_basis"), "reference");
    EXPECT_NEAR(t.at("error_relative_rms").get<double>(), relative_l2(y, x), 1e-12) << name;
    double most = 0;
    for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(double(x[i]) - y[i]));
    EXPECT_EQ(t.at("error_max_abs").get<double>(), most) << name;
  }
  damaged(
      {"inspect", golden("qwen3_untied"), "--against", golden("qwen3_tied/expected.safetensors")},
      "does not have it");
}

TEST_F(Inspect, Stats) {
  EXPECT_FALSE(contains(cli_ok({"inspect", dat_}), "rms "));
  const std::string out = cli_ok({"inspect", dat_, "--stats"});
  EXPECT_TRUE(contains(out, "rms ")) << out;
  EXPECT_TRUE(contains(out, "zero codes ")) << out;
  const float x[] = {-1, 0, 2, 3};
  const std::string made =
      write_dat({{"a.weight", 6, {4}, std::string(reinterpret_cast<const char*>(x), 16)}});
  const json t = json::parse(cli_ok({"inspect", made, "--json"})).at("tensors").at(0);
  EXPECT_EQ(t.at("min"), -1);
  EXPECT_EQ(t.at("max"), 3);
  EXPECT_EQ(t.at("mean"), 1);
  EXPECT_EQ(t.at("rms").get<double>(), std::sqrt(14.0 / 4));
}

TEST_F(Inspect, ConfigChecksNamesAndShapes) {
  cli_ok({"inspect", dat_, "--config", golden("qwen3_tied/config.json")});
  cli_ok({"inspect", golden("qwen3_untied")});  // its own config.json
  auto config = json::parse(read_text_file(golden("qwen3_tied/config.json")));
  config["num_hidden_layers"] = 1;
  config["intermediate_size"] = 176;
  replace_file(dir_.file("c.json"), config.dump());
  damaged({"inspect", dat_, "--config", dir_.file("c.json")},
          "'model.layers.0.mlp.up_proj.weight' has shape [160, 64], the config asks for [176, 64]");
  damaged({"inspect", dat_, "--config", dir_.file("c.json")},
          "'model.layers.1.mlp.up_proj.weight' is not part of the model");
  config["num_hidden_layers"] = 3;
  replace_file(dir_.file("c.json"), config.dump());
  damaged({"inspect", dat_, "--config", dir_.file("c.json")},
          "'model.layers.2.mlp.up_proj.weight' is missing");
}

TEST_F(Inspect, BrokenPairs) {
  const std::string codes(16, '\x22'), scales(2, '\x38');
  const Entry q{"a.weight.qdata", 0, {2, 8}, codes}, s{"a.weight.scale", 101, {2, 1}, scales};
  cli_ok({"inspect", write_dat({q, s})});
  damaged({"inspect", write_dat({q})}, "a.weight");
  damaged({"inspect", write_dat({s})}, "a.weight");
  damaged({"inspect", write_dat({q, {"a.weight.scale", 101, {1, 2}, scales}})}, "a.weight");
  damaged({"inspect", write_dat({q, {"a.weight.scale", 101, {2, 1}, "\x38\x7f"}})}, "row 1");
  const float zero = 0;
  const std::string g(reinterpret_cast<const char*>(&zero), 4);
  damaged({"inspect", write_dat({q, s, {"a.weight.global_scale", 6, {1}, g}})}, "global scale");
}

TEST_F(Inspect, ValuesThatAreNotNumbers) {
  const float x[] = {1, NAN, INFINITY, -INFINITY};
  const std::string made =
      write_dat({{"a.weight", 6, {4}, std::string(reinterpret_cast<const char*>(x), 16)}});
  damaged({"inspect", made}, "1 values are NaN");
  damaged({"inspect", made}, "2 values are infinite");
  damaged({"inspect", made, "--json"}, "\"damaged\": true");
  EXPECT_EQ(cli({"inspect", made, "--headers-only"}).code, 0);
}

TEST_F(Inspect, DamagedFiles) {
  const std::string whole = read_text_file(dat_);
  for (const size_t size : {size_t(0), size_t(1), size_t(40), whole.size() / 2, whole.size() - 1}) {
    replace_file(dir_.file("cut.dat"), whole.substr(0, size));
    damaged({"inspect", dir_.file("cut.dat")}, "cut.dat");
  }
  damaged({"inspect", dir_.file("none.dat")}, "none.dat");
  damaged({"inspect", dat_, "--against", dir_.file("none.dat")}, "none.dat");
}

TEST_F(Inspect, HeadersOnlyAndThreads) {
  const json j = json::parse(cli_ok({"inspect", dat_, "--headers-only", "--json"}));
  EXPECT_FALSE(j.at("tensors").at(0).contains("rms"));
  cli_fails({"inspect", dat_, "--headers-only", "--stats"}, 2, "--stats");
  EXPECT_EQ(cli_ok({"inspect", dat_, "--json", "--threads", "1"}),
            cli_ok({"inspect", dat_, "--json", "--threads", "3"}));
  cli_fails({"inspect"}, 2, "FILE is missing");
}

}  // namespace
}  // namespace nibble::test
