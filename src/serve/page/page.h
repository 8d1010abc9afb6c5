// SPDX-License-Identifier: MIT
// The page: its files, and the paths below /api that it asks. Everything else is the models' API.
// Any thread may call.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "serve/api/api_call.h"
#include "serve/api/model_shelf.h"
#include "serve/page/lessons.h"
#include "serve/page/runs_api.h"

namespace nibble {

class Page {
 public:
  // `shelf` outlives it.
  Page(ModelShelf& shelf, const PageFolders& folders, TeachSettings teach);

  // Never throws: what is wrong is an answer, too.
  ApiResponse answer(const ApiCall& call);
  // The run that goes on without us; empty: none does.
  std::string training() const noexcept { return lessons_.training(); }

 private:
  ApiResponse route(const ApiCall& call);
  ApiResponse models() const;
  ApiResponse tensors(const std::string& name);

  ModelShelf& shelf_;
  RunsApi runs_;
  Lessons lessons_;
  std::mutex tensors_mutex_;
  std::map<std::string, std::string>
      tensors_;  // answers by model: reading all of one takes a while
};

}  // namespace nibble
