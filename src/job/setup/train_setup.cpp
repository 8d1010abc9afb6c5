// SPDX-License-Identifier: MIT
#include "job/setup/train_setup.h"

#include "core/error.h"
#include "job/keep/kept_text.h"
#include "job/memory_choice.h"
#include "job/setup/slow_paths.h"

namespace nibble {

namespace fs = std::filesystem;

KeptInputs load_all_kept(const TrainJob& job, const TrainInputs& in,
                         const std::optional<TeacherFile>& teacher, Backend& backend,
                         const std::function<fs::path()>& directory) {
  KeptInputs kept;
  const TrainSettings s = job.train.settings();
  const TeacherWeights weights = teacher_weights(teacher, in, s);
  std::optional<KeptWriter> writer;
  for (const std::string& name : job.keep.sources) {
    const KeptSource source =
        kept_source(name, job.data.strict_data ? ExtraKeys::refuse : ExtraKeys::count);
    fs::path made;
    if (source.kind == KeptKind::prompts || source.kind == KeptKind::self) {
      if (job.ranks) {
        throw_usage(
            "--keep {}: the teacher would have to write it first, which several ranks do not do; "
            "let a run alone write it, and keep the kept-*.jsonl beside its checkpoints",
            name);
      }
      if (!writer) {
        const KeptWriter::Setting setting{s.compute, job.batch.seq_len, job.train.seed};
        writer.emplace(backend, weights, in.tokenizer, in.chat, setting, directory);
      }
      made = writer->write(source);
    }
    kept.samples.push_back(load_kept(job, in, source, made));
    kept.files.push_back(made.empty() ? fs::path(name) : made);
  }
  return kept;
}

TrainSettings settle(const TrainJob& job, const TrainInputs& in, const Config& as_trained,
                     const Backend& backend, const JobSamples& samples, const PackBounds& bounds,
                     const std::optional<TeacherFile>& teacher, const Gates& gates) {
  TrainSettings s = job.train.settings();
  s.schedule.steps = steps_of(job, samples.train ? samples.taught() : samples.all_kept());
  s.max_tokens = bounds.tokens;
  s.max_outputs = bounds.outputs;
  s.max_sequences = bounds.sequences;
  s.keep.weight = job.keep.weight;
  s.keep.max_tokens = bounds.kept_tokens;
  s.keep.max_sequences = bounds.kept_sequences;
  if (teacher) s.keep.teacher = teacher->shape();
  if (job.ranks) s.ranks = job.ranks->size(), s.rank = job.ranks->rank();
  // Rank 0 asks the probes.
  s.gate_bytes = s.rank == 0 ? gates.bytes(backend, as_trained, s) : 0;
  choose_memory(s, job.train, backend, as_trained, has_global_scales(*in.source),
                job.batch.accumulate);
  warn_of_slow_kernels(s, backend);
  return s;
}

}  // namespace nibble
