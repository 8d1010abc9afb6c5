// SPDX-License-Identifier: MIT
// Naming a model on the command line, the same way in every command.
#pragma once
#include "apps/options/options.h"
#include "runtime/model_paths.h"

namespace nibble {

inline void visit_fields(ModelOptions& o, Fields& f) {
  f.section("Model");
  f.add(o.model, {.flag = "--model",
                  .help = "The model: a Hugging Face directory, a .safetensors, a .gguf or a .dat "
                          "file, or a checkpoint (the newest of a directory of them); mini is the "
                          "one that comes with nibble. --model itself may be left out before it",
                  .value = "DIR|FILE",
                  .aliases = {"-m"},
                  .common = true,
                  .place = "MODEL"});
  f.add(o.weight, {.flag = "--weight",
                   .help = "The same as --model; with --model-dir, a file in that directory",
                   .value = "FILE",
                   .aliases = {"--input-dat"}});
  f.add(o.model_dir, {.flag = "--model-dir",
                      .help = "The same as --model; with --weight, where config.json and "
                              "tokenizer.json lie",
                      .value = "DIR",
                      .aliases = {"--path"}});
  f.add(o.config, {.flag = "--config",
                   .help = "config.json, when it does not lie beside the weights",
                   .value = "FILE"});
  f.add(o.tokenizer, {.flag = "--tokenizer",
                      .help = "tokenizer.json, when it does not lie beside the weights",
                      .value = "FILE"});
}

}  // namespace nibble
