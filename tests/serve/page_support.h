// SPDX-License-Identifier: MIT
// The mini model behind the page, with folders of its own.
#pragma once
#include "core/json.h"
#include "serve/page/page.h"
#include "support/paths.h"
#include "support/temporary_directory.h"

namespace nibble::test {

class MiniPage {
 public:
  MiniPage()
      : folder("page"),
        folders{folder.path() / "work", folder.path() / "runs", folder.path() / "models"},
        model(open(kSourceDir + std::string("/models/mini")), "mini", settings()),
        shelf(model),
        page(shelf, folders, teach()) {}

  static Runtime open(const std::filesystem::path& path) {
    RuntimeOptions o;
    o.model.model = path;
    o.device = Device::cpu;
    o.threads = 2;
    return open_runtime(o, TokenizerNeed::required);
  }
  static ServeSettings settings() {
    ServeSettings s;
    s.streams = 2;
    return s;
  }

  ApiResponse get(const std::string& path) { return page.answer({"GET", path, "", {}}); }
  ApiResponse post(const std::string& path, const std::string& body = "{}") {
    return page.answer({"POST", path, body, {}});
  }
  static nlohmann::ordered_json json(const ApiResponse& r) {
    return parse_json<nlohmann::ordered_json>(r.body);
  }

  TemporaryDirectory folder;
  PageFolders folders;
  RunningModel model;
  ModelShelf shelf;
  Page page;

 private:
  static TeachSettings teach() {
    TeachSettings t;
    t.base.model.model = kSourceDir + std::string("/models/mini");
    t.base.weights = t.base.model.model / "mini.dat";
    t.base.device = "cpu";
    t.base.threads = 2;
    t.program = {kNibblePath, kNibblePath};
    t.open = [](const std::filesystem::path& path, const std::string& name) {
      return std::make_shared<RunningModel>(open(path), name, settings());
    };
    return t;
  }
};

}  // namespace nibble::test
