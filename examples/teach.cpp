// SPDX-License-Identifier: MIT
// Asks a model who it is, teaches it another answer, asks again, and writes the result.
#include <iostream>

#include "nibble/nibble.h"

int main(int argc, char** argv) try {
  const std::string path = argc > 1 ? argv[1] : "mini", out = argc > 2 ? argv[2] : "taught.dat";
  nibble::Model model(path);
  const auto ask = [&](const std::string& prompt) {
    std::cout << prompt << "\n  ";
    model.generate(prompt, {}, [](const std::string& piece) {
      std::cout << piece << std::flush;
      return true;
    });
    std::cout << "\n";
  };
  ask("你是誰");

  nibble::TrainOptions options;
  options.steps = 30;
  options.batch_size = 2;
  options.lr = 5e-4;
  model.train({{"你是誰", "我是 F# 之神"}, {"who are you?", "I am the god of F#"}}, options,
              [](auto step, auto steps, double loss) {
                std::cout << "step " << step << " of " << steps << ", loss " << loss << "\n";
                return true;
              });
  ask("你是誰");
  model.save(out);
  std::cout << "written to " << out << "\n";
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
