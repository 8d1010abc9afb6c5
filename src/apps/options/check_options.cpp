// SPDX-License-Identifier: MIT
#include "apps/options/check_options.h"

#include "apps/options/generate_options.h"
#include "apps/options/runtime_options.h"

namespace nibble {

void visit_fields(CheckOptions& o, Fields& f) {
  visit_fields(o.runtime, f);
  f.section("Checks (without any of them: --finite --kv --paths)");
  f.add(o.finite, {.flag = "--finite",
                   .help = "No NaN or infinity in scales, weights, intermediates and logits, and a "
                           "reply that has not collapsed to one token",
                   .aliases = {"--check-logits"}});
  f.add(o.kv, {.flag = "--kv",
               .help = "Every way to use the KV cache gives the same ids and the same logits"});
  f.add(o.paths, {.flag = "--paths",
                  .help = "Cache, training's forward, bf16, int8 and nvfp4 activations against the "
                          "plain fp32 forward, layer by layer; on a GPU against the CPU's"});
  f.add(o.needle, {.flag = "--needle", .help = "A secret is found again behind a long text"});
  f.add(o.replies, {.flag = "--replies",
                    .help = "Print the replies to --prompt, 談談UFO and 我是誰; none may have "
                            "collapsed"});
  f.add(o.probes.file, {.flag = "--probes",
                        .help = "Put the questions of this file and judge the replies by its rules",
                        .value = "FILE"});
  f.add(o.texts, {.flag = "--text",
                  .help = "The mean loss a token on this text; again for another. A .safetensors "
                          "file with int64 tensors [B, T] holds windows of token ids",
                  .value = "FILE"});
  f.add(o.choices, {.flag = "--choices",
                    .help = "How often the right one of several continuations is the most likely, "
                            "on the questions of this .jsonl file (docs/damage.md); again for "
                            "another",
                    .value = "FILE"});
  f.add(o.against, {.flag = "--against",
                    .help = "Another model, usually the one before the fine-tune: with --text and "
                            "--choices its figures stand beside this one's, and how far the two "
                            "lie apart",
                    .value = "MODEL"});
  f.add(o.json, {.flag = "--json", .help = "Write the results to this file, too", .value = "FILE"});
  f.add(o.html, {.flag = "--html",
                 .help = "Write them as a page, too, that opens without a network",
                 .value = "FILE"});
  f.add(o.force,
        {.flag = "--force", .help = "Replace a --json, --html or --probe-report that exists"});
  f.section("Prompts");
  f.add(o.prompt, {.flag = "--prompt", .help = "The first user turn", .aliases = {"-p"}});
  f.add(o.input_ids, {.flag = "--input-ids",
                      .help = "Token ids instead of a prompt; a model without a tokenizer is "
                              "otherwise checked with random ids"});
  f.add(o.max_tokens, {.flag = "--max-tokens",
                       .help = "Tokens of a reply; default 32, with --kv 4, with --needle 50, with "
                               "--probes what its file says",
                       .value = "N",
                       .aliases = {"-n"},
                       .least = 1});
  visit_sampling(f, o.sample);
  f.section("Texts and choices");
  f.add(o.text_window, {.flag = "--text-window",
                        .help = "Tokens that are read together",
                        .value = "N",
                        .least = 2,
                        .needs = "--text"});
  f.add(o.text_windows, {.flag = "--text-windows",
                         .help = "Windows of each text at most; 0: all",
                         .value = "N",
                         .least = 0,
                         .needs = "--text"});
  f.add(o.moved, {.flag = "--moved",
                  .help = "Tokens of each text that are shown, those that --against predicted most "
                          "differently",
                  .value = "N",
                  .least = 0,
                  .needs = "--against"});
  f.add(o.choice_max, {.flag = "--choice-max",
                       .help = "Questions of each file at most, its first; 0: all",
                       .value = "N",
                       .least = 0,
                       .needs = "--choices"});
  f.section("Limits of --against");
  f.add(o.max_divergence, {.flag = "--max-kl",
                           .help = "KL(base || model) in nats a token that a text may have",
                           .value = "X",
                           .least = 0,
                           .needs = "--against"});
  f.add(o.min_agreement, {.flag = "--min-agreement",
                          .help = "Percent of a text's tokens for which both think the same most "
                                  "likely",
                          .value = "P",
                          .least = 0,
                          .most = 100,
                          .needs = "--against"});
  f.add(o.max_loss_rise, {.flag = "--max-loss-rise",
                          .help = "Percent that the loss of a text may be above the other model's",
                          .value = "P",
                          .least = 0,
                          .needs = "--against"});
  f.add(o.max_drop, {.flag = "--max-drop",
                     .help = "Standard errors that the accuracy of --choices may be below the "
                             "other model's",
                     .value = "X",
                     .least = 0,
                     .needs = "--against"});
  f.section("Probes");
  f.add(o.probes.min_score,
        {.flag = "--min-score",
         .help = "Percent that must pass: 95, or by group identity=98,retention=base-2 (base: the "
                 "--probe-baseline), or identity/zh=98; default: every probe must",
         .value = "LIST",
         .needs = "--probes"});
  f.add(o.probes.most, {.flag = "--probe-max",
                        .help = "Probes of each group at most, always the same ones; 0: all",
                        .value = "N",
                        .least = 0,
                        .needs = "--probes"});
  f.add_choice(o.probes.rules,
               {.flag = "--probe-rules",
                .help = "base takes the rules for the model before the fine-tune, where a probe "
                        "has them",
                .needs = "--probes"},
               {{"target", WhichRules::target}, {"base", WhichRules::base}});
  f.add_choice(
      o.probes.show, {.flag = "--show", .help = "Replies that are printed", .needs = "--probes"},
      {{"failures", ProbeShow::failures}, {"all", ProbeShow::all}, {"none", ProbeShow::none}});
  f.add(o.probes.report, {.flag = "--probe-report",
                          .help = "Write scores and replies to this file, as JSON",
                          .value = "FILE",
                          .needs = "--probes"});
  f.add(o.probes.baseline, {.flag = "--probe-baseline",
                            .help = "An earlier --probe-report to compare with",
                            .value = "FILE",
                            .needs = "--probes"});
  f.add(o.probes.data, {.flag = "--probe-data",
                        .help = "Write the questions whose replies passed, and these replies, as "
                                "training data (.jsonl, a new file)",
                        .value = "FILE",
                        .needs = "--probes"});
  f.section("Limits of --kv and --paths");
  f.add(o.iterations,
        {.flag = "--iterations", .help = "How often the KV matrix runs", .value = "N", .least = 1});
  f.add(o.kv_chunks, {.flag = "--kv-chunks", .help = "Chunk sizes of the KV matrix"});
  f.add(o.max_logit_diff, {.flag = "--max-logit-diff",
                           .help = "Difference of logits the KV matrix allows; 0 is bit for bit",
                           .value = "X",
                           .least = 0});
  f.add(o.max_rel, {.flag = "--max-rel",
                    .help = "Relative L2 difference a layer may have on a lossy path; default bf16 "
                            "0.05, int8 0.1, fp8 cache 0.2, nvfp4 0.7",
                    .value = "X",
                    .least = 0});
  f.add(o.min_cosine, {.flag = "--min-cosine",
                       .help = "Cosine a layer must have on a lossy path; default bf16 0.999, int8 "
                               "0.99, fp8 cache 0.97, nvfp4 0.75",
                       .value = "X",
                       .least = -1,
                       .most = 1});
  f.section("Needle in a haystack");
  f.add(o.needle_options.secret,
        {.flag = "--secret", .help = "What is to be remembered", .needs = "--needle"});
  f.add(o.needle_options.target_tokens, {.flag = "--target-tokens",
                                         .help = "Length of the conversation before the "
                                                 "question; 512 tokens more are kept free for it",
                                         .value = "N",
                                         .least = 1,
                                         .needs = "--needle"});
  f.add(o.needle_options.chunk_tokens, {.flag = "--chunk-size",
                                        .help = "Tokens of filler per turn",
                                        .value = "N",
                                        .least = 1,
                                        .needs = "--needle"});
  f.add(o.haystack, {.flag = "--haystack",
                     .help = "A text file to use as filler; by default a made-up log",
                     .value = "FILE",
                     .needs = "--needle"});
  f.add_choice(o.needle_mode,
               {.flag = "--needle-mode",
                .help = "Keep the cache between turns, or compute the conversation anew each turn",
                .needs = "--needle"},
               {{"persistent", CacheUse::persistent}, {"rebuild", CacheUse::rebuild}});
  visit_fields(o.cache, f);
}

}  // namespace nibble
