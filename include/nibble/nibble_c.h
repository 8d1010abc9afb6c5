/* SPDX-License-Identifier: MIT
 * nibble as a library, for C and for every language that can call C: load a model, generate with a
 * callback, teach it rows, write the result. nibble.h is the same for C++.
 *
 * A function that can fail returns NULL or a code that is not 0; nibble_error() then says what was
 * attempted, what was found and what would help, until this thread's next call. A model belongs to
 * one thread at a time. Texts are UTF-8. Structs begin with their size, so that a later version may
 * add members: NIBBLE_INIT(nibble_train_options, o) sets it and zeroes the rest; 0, 0.0 and NULL
 * mean the default. */
#ifndef NIBBLE_NIBBLE_C_H
#define NIBBLE_NIBBLE_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NIBBLE_API __attribute__((visibility("default")))
#else
#define NIBBLE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
#define NIBBLE_ZERO \
  {}
#else
#define NIBBLE_ZERO \
  { 0 }
#endif
#define NIBBLE_INIT(type, name) \
  type name = NIBBLE_ZERO;      \
  name.struct_size = sizeof(type)

/* The exit codes of the program, and one more. */
enum {
  NIBBLE_OK = 0,
  NIBBLE_CHECK_FAILED = 1, /* the model is broken, or a training did not pass its self-test */
  NIBBLE_USAGE = 2,        /* an argument */
  NIBBLE_FILE = 3,         /* a file: missing, damaged, not to be replaced */
  NIBBLE_DEVICE = 4,       /* a GPU, or memory */
  NIBBLE_STOPPED = 5,      /* a callback said so */
  NIBBLE_BUG = 70          /* ours */
};

typedef struct nibble_model nibble_model;

NIBBLE_API const char* nibble_version(void);   /* "0.1.0" */
NIBBLE_API const char* nibble_error(void);     /* of this thread's last call; "" */
NIBBLE_API int32_t nibble_error_code(void);    /* NIBBLE_OK .. */
NIBBLE_API void nibble_set_log(int32_t level); /* lines on stderr: 0 warnings (default), 1, 2 all */

typedef struct {
  size_t struct_size;
  const char* device; /* "auto" (default), "cpu", "cuda", "cuda:1" */
  int32_t threads;    /* of a CPU; 0: all cores */
  int64_t context;    /* tokens a conversation can have; 0: 8192, or what the model knows */
} nibble_load_options;

/* A Hugging Face folder, a .dat or .safetensors file with config.json and tokenizer.json beside it,
 * or "mini", the model that comes with nibble. */
NIBBLE_API nibble_model* nibble_load(const char* path, const nibble_load_options* options);
NIBBLE_API void nibble_free(nibble_model* model); /* NULL: nothing */

typedef struct {
  const char* role; /* "system", "user", "assistant" */
  const char* content;
} nibble_message;

typedef struct {
  size_t struct_size;
  int64_t max_tokens; /* 0: 256 */
  double temperature; /* 0: always the likeliest token */
  double top_p;       /* 0: 1 */
  int64_t top_k;      /* 0: all */
  uint64_t seed;
} nibble_generate_options;

/* Is given the reply piece by piece, never in the middle of a character; not 0 ends it there. */
typedef int32_t (*nibble_text_callback)(const char* piece, void* user);

/* Answers the conversation, whose last message is the user's. */
NIBBLE_API int32_t nibble_generate(nibble_model* model, const nibble_message* messages,
                                   size_t count, const nibble_generate_options* options,
                                   nibble_text_callback on_text, void* user);

typedef struct {
  const char* prompt;
  const char* response;
} nibble_row;

typedef struct {
  size_t struct_size;
  int64_t steps;      /* 0: once over the rows */
  double lr;          /* 0: 1e-5 */
  int64_t batch_size; /* rows of a step; 0: 1 */
  int64_t seq_len;    /* tokens of a row at most; 0: 512 */
  uint64_t seed;
  const char* runs_dir; /* where the run's record goes; NULL: "nibble-runs" */
} nibble_train_options;

/* After every step; not 0 ends the training there, and the model stays as it was. */
typedef int32_t (*nibble_step_callback)(int64_t step, int64_t steps, double loss, void* user);

/* Trains every parameter so that each prompt is answered with its response. Afterwards the model
 * answers as trained; the file it was loaded from is untouched. */
NIBBLE_API int32_t nibble_train(nibble_model* model, const nibble_row* rows, size_t count,
                                const nibble_train_options* options, nibble_step_callback on_step,
                                void* user);

/* Writes the model as it is now: "x.dat", "x.safetensors" or a Hugging Face folder, with config and
 * tokenizer beside it. Nothing that exists is replaced. */
NIBBLE_API int32_t nibble_export(nibble_model* model, const char* path);

#ifdef __cplusplus
}
#endif
#endif
