// SPDX-License-Identifier: MIT
#include "generate/batch_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/download.h"
#include "core/error.h"
#include "model/decoder.h"

namespace nibble {
namespace {

constexpr int64_t kRowWords = int64_t(sizeof(SampleRow) / sizeof(int32_t));

struct BatchTables {
  Batch batch;
  Tensor all;  // i32: every table of the batch, one upload
};

// `rows` come first: they are read as 64-bit numbers, too.
BatchTables make_tables(Arena& arena, int64_t n, int64_t sequences, int64_t outputs, int64_t rows) {
  BatchTables t;
  int64_t at = rows * kRowWords;
  t.all = arena.take(DType::i32, {at + 3 * n + 4 * sequences + outputs});
  const auto part = [&](int64_t count) {
    const Tensor p = t.all.slice(at, count);
    at += count;
    return p;
  };
  t.batch.ids = part(n);
  t.batch.positions = part(n);
  t.batch.slots = part(n);
  t.batch.sequences = part(4 * sequences).view({sequences, 4});
  t.batch.out_rows = part(outputs);
  return t;
}

// Before the cache is allocated: its size follows from this number.
CacheShape checked_shape(const EngineOptions& o, const Config& c, int64_t sequences) {
  if (o.context < 1 || o.context > c.max_positions) {
    throw_usage("a context of {} tokens was asked for, but the model knows positions up to {}",
                o.context, c.max_positions);
  }
  if (sequences < 1 || sequences > INT32_MAX / o.context) {
    throw_usage("{} sequences of {} tokens were asked for, expected 1 .. {}", sequences, o.context,
                INT32_MAX / o.context);
  }
  return {sequences, o.context, o.pool};
}

void append(std::vector<int32_t>& host, const SampleRow& row) {
  int32_t words[size_t(kRowWords)];
  std::memcpy(words, &row, sizeof(row));
  host.insert(host.end(), words, words + kRowWords);
}

}  // namespace

BatchEngine::BatchEngine(Backend& backend, const Model& model, const EngineOptions& options,
                         int64_t sequences)
    : backend_(backend),
      model_(model),
      options_(options),
      cache_(backend, model.config, checked_shape(options, model.config, sequences), options.cache),
      sequences_(size_t(sequences)),
      steps_(size_t(sequences)) {
  hand_over_ = backend.make_hand_over();
}

const BatchEngine::OneSequence& BatchEngine::at(int64_t sequence) const {
  if (sequence < 0 || sequence >= sequences())
    throw_internal("sequence {} of {}", sequence, sequences());
  return sequences_[size_t(sequence)];
}
BatchEngine::OneSequence& BatchEngine::at(int64_t sequence) {
  return const_cast<OneSequence&>(std::as_const(*this).at(sequence));
}

void BatchEngine::truncate(int64_t sequence, int64_t length) {
  OneSequence& s = at(sequence);
  if (length < 0 || length > int64_t(s.tokens.size()))
    throw_internal("truncate to {} of {}", length, s.tokens.size());
  if (length < int64_t(s.tokens.size()) && sequence == last_fed_ && logits_lost_) {
    logits_lost_ = false;  // and cannot be made again
    last_logits_ = {};
  }
  s.tokens.resize(size_t(length));
  s.known = std::min(s.known, length);
  cache_.keep(sequence, length);
}

void BatchEngine::hold(int64_t sequence, int64_t tokens) {
  if (cache_.hold(sequence, tokens)) return;
  throw PoolFull(fmt::format(
      "the cache is full: {} tokens were to be in a sequence that holds {}, and {} of "
      "{} blocks of {} tokens are free",
      tokens, length(sequence), cache_.blocks().free(), cache_.blocks().blocks(), cache_.block()));
}

void BatchEngine::read_cache(int64_t sequence,
                             const std::function<void(std::span<const std::byte>)>& part) {
  const int64_t n = length(sequence), first = cache_.first_slot(sequence);
  if (n == 0) return;
  std::vector<std::byte> host;
  for (const KvView& layer : cache_.views()) {
    for (const Tensor& t : {layer.k.slice(first, n), layer.v.slice(first, n)}) {
      host.resize(t.bytes());
      backend_.download(host.data(), t);
      part(host);
    }
  }
}

void BatchEngine::write_cache(int64_t sequence, std::span<const int32_t> tokens,
                              const std::function<void(std::span<std::byte>)>& fill) {
  truncate(sequence, 0);
  check(sequence, tokens);
  hold(sequence, int64_t(tokens.size()));
  const int64_t n = int64_t(tokens.size()), first = cache_.first_slot(sequence);
  std::vector<std::byte> host;
  for (const KvView& layer : cache_.views()) {
    for (const Tensor& t : {layer.k.slice(first, n), layer.v.slice(first, n)}) {
      host.resize(t.bytes());
      fill(host);
      backend_.upload(t, host.data());
      backend_.sync();  // the host's bytes are overwritten by the next part
    }
  }
  at(sequence).tokens.assign(tokens.begin(), tokens.end());
  ahead_.begun = logits_lost_ = false;
  last_logits_ = {};
  last_fed_ = -1;
}

void BatchEngine::copy_prefix(int64_t from, int64_t to, int64_t length) {
  const std::vector<int32_t>& tokens = at(from).tokens;
  if (from == to || length < 0 || length > int64_t(tokens.size()))
    throw_internal("copy {} of {} tokens from {} to {}", length, tokens.size(), from, to);
  truncate(to, 0);
  if (!cache_.share(from, to, length)) {
    hold(to, length);
    for (const KvView& layer : cache_.views()) {
      if (length == 0) break;
      for (const Tensor& t : {layer.k, layer.v}) {
        backend_.copy(t.slice(cache_.first_slot(to), length),
                      t.slice(cache_.first_slot(from), length));
      }
    }
  }
  at(to).tokens.assign(tokens.begin(), tokens.begin() + length);
  if (ahead_.begun || last_fed_ == to) last_logits_ = {};
  ahead_.begun = logits_lost_ = false;
}

void BatchEngine::check(int64_t sequence, std::span<const int32_t> tokens) const {
  if (tokens.empty()) throw_usage("there is nothing to run: the prompt has no tokens");
  for (int32_t id : tokens) {
    if (id < 0 || id >= model_.config.V) {
      throw_usage(
          "token {} is outside the model's vocabulary of {}: does the tokenizer belong to this "
          "model?",
          id, model_.config.V);
    }
  }
  const int64_t needed = length(sequence) + int64_t(tokens.size());
  if (int64_t(tokens.size()) > room(sequence)) {
    throw ContextFull(fmt::format(
        "the context is full: {} tokens are in it, {} more were to be added, it holds {}; {}start "
        "a "
        "new conversation",
        length(sequence), tokens.size(), options_.context,
        needed <= model_.config.max_positions ? fmt::format("use --context {} or ", needed) : ""));
  }
}

void BatchEngine::reserve(int64_t n, int64_t outputs) {
  ActsShape shape{n, std::max<int64_t>(1, outputs), options_.compute, options_.stat, Keep::none};
  Arena measure("activations");
  make_tables(measure, n, 1, outputs, 0);
  make_acts(measure, model_.config, shape);
  if (!acts_arena_ || acts_arena_->capacity() < measure.peak()) {
    acts_arena_.reset();
    acts_arena_ =
        std::make_unique<Arena>("activations", backend_.allocate(measure.peak(), "activations"));
  }
  acts_arena_->release(0);
}

void BatchEngine::run(int64_t sequence, std::span<const int32_t> tokens, Outputs outputs) {
  OneSequence& s = at(sequence);
  const int64_t n = int64_t(tokens.size()), past = length(sequence);
  const int64_t first_slot = cache_.first_slot(sequence);
  hold(sequence, past + n);
  const int64_t rows = outputs == Outputs::all ? n : outputs == Outputs::last ? 1 : 0;
  reserve(n, rows);
  BatchTables tables = make_tables(*acts_arena_, n, 1, rows, 0);
  acts_ = make_acts(*acts_arena_, model_.config,
                    {n, std::max<int64_t>(1, rows), options_.compute, options_.stat, Keep::none});
  host_.assign(tokens.begin(), tokens.end());
  for (const int64_t begin : {past, first_slot + past}) {  // positions, slots
    for (int64_t i = 0; i < n; ++i) host_.push_back(int32_t(begin + i));
  }
  for (int64_t v : {int64_t(0), n, first_slot, past + n}) host_.push_back(int32_t(v));
  for (int64_t r = 0; r < rows; ++r) host_.push_back(int32_t(outputs == Outputs::all ? r : n - 1));
  backend_.upload(tables.all, host_.data());
  forward(backend_, model_.config, model_.weights, tables.batch, acts_, cache_.views(),
          options_.activations, {model_.weights_needed, {}});
  s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
  last_fed_ = sequence;
  ahead_.begun = logits_lost_ = false;
  last_logits_ = rows > 0 ? acts_.logits : Tensor{};
}

bool BatchEngine::feed(int64_t sequence, std::span<const int32_t> tokens,
                       const std::function<bool()>& stop) {
  check(sequence, tokens);
  const int64_t before = length(sequence);
  hold(sequence, before + int64_t(tokens.size()));
  const size_t step = options_.chunk > 0 ? size_t(options_.chunk) : tokens.size();
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    if (begin > 0 && stop && stop()) {
      truncate(sequence, before);
      return false;
    }
    const size_t count = std::min(step, tokens.size() - begin);
    run(sequence, tokens.subspan(begin, count),
        begin + count == tokens.size() ? Outputs::last : Outputs::none);
  }
  return true;
}

void BatchEngine::feed_part(int64_t sequence, std::span<const int32_t> tokens) {
  check(sequence, tokens);
  run(sequence, tokens, Outputs::none);
}

std::vector<float> BatchEngine::feed_all(int64_t sequence, std::span<const int32_t> tokens) {
  check(sequence, tokens);
  run(sequence, tokens, Outputs::all);
  return logits();
}

// The last token once more: its keys and values come out as they are.
void BatchEngine::refresh_logits() {
  if (!std::exchange(logits_lost_, false)) return;
  last_logits_ = {};
  const int64_t sequence = last_fed_, before = length(sequence) - 1;
  const int32_t id = tokens(sequence).back();
  truncate(sequence, before);
  try {
    run(sequence, std::span(&id, 1), Outputs::last);
  } catch (...) {
    at(sequence).tokens.resize(size_t(before));
    at(sequence).tokens.push_back(id);
    throw;
  }
}

std::vector<float> BatchEngine::logits() {
  refresh_logits();
  if (!last_logits_) throw_internal("logits are wanted, but nothing was fed");
  return download_floats(backend_, last_logits_);
}

std::vector<float> BatchEngine::logits_of(int64_t row) {
  refresh_logits();
  if (!last_logits_ || row < 0 || row >= last_logits_.dim(0))
    throw_internal("logits of row {} are wanted, but there is none", row);
  return download_floats(backend_, last_logits_.slice(row, 1));
}

Tensor BatchEngine::history() const {
  if (!history_arena_) return {};
  history_arena_->release(0);
  return history_arena_->take(DType::i32, {options_.context * sequences()});
}

SampleRow BatchEngine::prepare(int64_t sequence, const SampleOptions& options, uint64_t draw) {
  SampleRow row = sample_row(options, draw);
  if (options.repetition_penalty == 1) return row;
  OneSequence& s = at(sequence);
  if (!history_arena_) {
    Arena measure("token history");  // a context need not be a multiple of its alignment
    measure.take(DType::i32, {options_.context * sequences()});
    history_arena_ = std::make_unique<Arena>(
        "token history", backend_.allocate(measure.peak(), "the tokens of the repetition penalty"));
  }
  const int64_t begin = sequence * options_.context, n = int64_t(s.tokens.size());
  if (s.known < n) {
    backend_.upload(history().slice(begin + s.known, n - s.known), s.tokens.data() + s.known);
    s.known = n;
  }
  row.context_begin = int32_t(begin);
  row.context_length = int32_t(n);
  return row;
}

int32_t BatchEngine::sample(const SampleOptions& options, uint64_t draw) {
  refresh_logits();
  if (!last_logits_ || last_logits_.dim(0) != 1 || last_fed_ < 0)
    throw_internal("a token is to be chosen, but nothing was fed");
  const SampleRow row = prepare(last_fed_, options, draw);
  StepSlots& slots = step_slots(1);
  backend_.upload(slots.rows, &row);
  const bool plain = options.repetition_penalty == 1;
  backend_.sample(slots.out, last_logits_, slots.rows, plain ? Tensor{} : history(),
                  plain && !(options.temperature > 0) ? Choice::greedy : Choice::any);
  int32_t id = -1;
  backend_.download(&id, slots.out);
  return id;
}

BatchEngine::StepSlots BatchEngine::make_step_slots(Arena& arena, int64_t n) const {
  StepSlots s;
  BatchTables tables = make_tables(arena, n, n, n, n);
  s.tables = tables.all;
  s.rows = tables.all.slice(0, n * kRowWords).view({n, kRowWords});
  s.batch = tables.batch;
  s.out = arena.take(DType::i32, {n});
  s.acts = make_acts(arena, model_.config, {n, n, options_.compute, options_.stat, Keep::none});
  s.plan = decode_plan(model_.config, model_.weights, s.batch, s.acts, cache_.views(),
                       options_.activations);
  return s;
}

BatchEngine::StepSlots& BatchEngine::step_slots(int64_t n) {
  if (!step_arena_) {
    Arena measure("step");
    make_step_slots(measure, sequences());
    step_arena_ = std::make_unique<Arena>(
        "step", backend_.allocate(measure.peak(), "activations of a decoding step"));
  }
  std::unique_ptr<StepSlots>& slots = steps_[size_t(n - 1)];
  if (!slots) {
    step_arena_->release(0);
    slots = std::make_unique<StepSlots>(make_step_slots(*step_arena_, n));
  }
  return *slots;
}

void BatchEngine::upload_tables(StepSlots& slots, std::span<const DecodeStep> steps) {
  host_.clear();
  for (const DecodeStep& d : steps) append(host_, prepare(d.sequence, d.sample, d.draw));
  const auto push = [&](auto&& value) {
    for (size_t i = 0; i < steps.size(); ++i) {
      host_.push_back(int32_t(value(steps[i], int64_t(i))));
    }
  };
  const auto slot = [&](const DecodeStep& d) { return cache_.first_slot(d.sequence); };
  push([&](const DecodeStep& d, int64_t) { return d.id; });
  push([&](const DecodeStep& d, int64_t) { return length(d.sequence) - 1; });
  push([&](const DecodeStep& d, int64_t) { return slot(d) + length(d.sequence) - 1; });
  for (size_t i = 0; i < steps.size(); ++i) {
    const DecodeStep& d = steps[i];
    for (const int64_t v : {int64_t(i), int64_t(1), slot(d), length(d.sequence)})
      host_.push_back(int32_t(v));
  }
  push([&](const DecodeStep&, int64_t i) { return i; });
  backend_.upload(slots.tables, host_.data());
}

DecodeWay BatchEngine::decode_way(int64_t n) {
  if (n < 1 || n > sequences()) throw_internal("a step of {} of {} sequences", n, sequences());
  if (model_.weights_needed) return {};
  return backend_.decode_way(step_slots(n).plan);
}

void BatchEngine::enqueue(StepSlots& slots, Ops ops) {
  const auto plain = [&] {
    forward(backend_, model_.config, model_.weights, slots.batch, slots.acts, cache_.views(),
            options_.activations, {model_.weights_needed, {}});
  };
  backend_.repeat(slots.recordings[size_t(ops)], [&] {
    // Weights that are made layer by layer are not all there at once, as a plan says they are.
    if (model_.weights_needed) {
      plain();
    } else {
      backend_.decode_step(slots.plan, plain);
    }
    backend_.sample(slots.out, slots.acts.logits, slots.rows,
                    ops == Ops::penalised ? history() : Tensor{},
                    ops == Ops::greedy ? Choice::greedy : Choice::any);
    if (hand_over_ && slots.out.dim(0) == 1) {
      const Batch& b = slots.batch;
      hand_over_->advance({b.ids, b.positions, b.slots, b.sequences, slots.rows, slots.out});
    }
  });
}

bool BatchEngine::is_begun(std::span<const DecodeStep> steps) const {
  if (!ahead_.begun || steps.size() != 1) return false;
  const DecodeStep &d = steps[0], &a = ahead_.step;
  return d.sequence == a.sequence && d.id == chosen_[0] && d.sample == a.sample &&
         (d.draw == a.draw || !(d.sample.temperature > 0)) && length(d.sequence) == ahead_.length;
}

int32_t BatchEngine::begin_ahead(StepSlots& slots, Ops ops, const DecodeStep& step) {
  hand_over_->mark();
  logits_lost_ = true;
  enqueue(slots, ops);
  const int32_t chosen = hand_over_->chosen_at(length(step.sequence) - 1);
  ahead_ = {true, step, length(step.sequence)};
  ++ahead_.step.draw;
  return chosen;
}

std::span<const int32_t> BatchEngine::step(std::span<const DecodeStep> steps, Follow follow) {
  const int64_t n = int64_t(steps.size());
  if (n < 1 || n > sequences()) throw_internal("a step of {} of {} sequences", n, sequences());
  std::vector<bool> taken(sequences_.size());
  Ops ops = Ops::greedy;
  for (const DecodeStep& d : steps) {
    check(d.sequence, std::span(&d.id, 1));
    if (taken[size_t(d.sequence)]) throw_internal("sequence {} twice in one step", d.sequence);
    taken[size_t(d.sequence)] = true;
    sample_row(d.sample, d.draw);  // refuses before anything is appended
    hold(d.sequence, length(d.sequence) + 1);
    const Ops own = d.sample.repetition_penalty != 1 ? Ops::penalised
                    : d.sample.temperature > 0       ? Ops::drawn
                                                     : Ops::greedy;
    ops = std::max(ops, own);
  }
  const bool begun = is_begun(steps);
  ahead_.begun = logits_lost_ = false;
  for (const DecodeStep& d : steps) at(d.sequence).tokens.push_back(d.id);

  StepSlots& slots = step_slots(n);
  if (!begun) {
    try {
      upload_tables(slots, steps);
      enqueue(slots, ops);
    } catch (...) {  // a token without its keys must not stay
      for (const DecodeStep& d : steps) at(d.sequence).tokens.pop_back();
      throw;
    }
  }
  last_logits_ = slots.acts.logits;
  last_fed_ = n == 1 ? steps[0].sequence : -1;
  chosen_.resize(size_t(n));
  // The penalty looks at tokens that are not known before.
  if (follow == Follow::chosen && hand_over_ && n == 1 && ops != Ops::penalised &&
      room(steps[0].sequence) > 0 &&
      cache_.hold(steps[0].sequence, length(steps[0].sequence) + 1)) {
    chosen_[0] = begin_ahead(slots, ops, steps[0]);
  } else {
    backend_.download(chosen_.data(), slots.out);
  }
  return chosen_;
}

}  // namespace nibble
