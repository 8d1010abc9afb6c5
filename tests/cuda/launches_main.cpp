// SPDX-License-Identifier: MIT
// Prints what the backend would launch on each GPU for Qwen3-4B's shape, a JSON object a line:
// tools/gpu_table.py makes tables of it.
#include <fmt/format.h>

#include "scenes.h"

int main() {
  using namespace nibble::test;
  const int64_t sequences[] = {1, 2, 8, 32, 64, 128}, prompts[] = {512, 2048}, steps[] = {96, 2048};
  const nibble::Config& config = scene_shapes()[0].config;
  for (const FakeGpu& gpu : fake_gpus()) {
    std::vector<Scene> scenes = decode_scenes(gpu, config, sequences);
    for (auto& s : prompt_scenes(gpu, config, prompts)) scenes.push_back(std::move(s));
    for (auto& s : training_scenes(gpu, config, steps)) scenes.push_back(std::move(s));
    for (const Scene& scene : scenes) {
      for (const FakeLaunch& l : scene.launches) {
        fmt::print(
            R"({{"gpu":"{}","capability":{},"scene":"{}","kernel":"{}","blocks":[{},{},{}],"threads":{},"shared":{},"cluster":{},"product":[{},{},{}]}})"
            "\n",
            gpu.name, gpu.capability(), scene.name, l.kernel, l.blocks[0], l.blocks[1], l.blocks[2],
            l.threads, l.shared_bytes, l.cluster, l.product[0], l.product[1], l.product[2]);
      }
    }
  }
}
