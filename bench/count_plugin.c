// SPDX-License-Identifier: MIT
// A plugin of qemu-user: counts the instructions a program executes, and says so when it ends. Debian
// has no qemu-plugin.h: what is used of it (version 1) is declared here.
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
typedef struct qemu_info_t qemu_info_t;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
typedef void (*translated_t)(qemu_plugin_id_t id, struct qemu_plugin_tb* block);
typedef void (*exit_t)(qemu_plugin_id_t id, void* data);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated_t call);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb* block, enum qemu_plugin_op op, void* to,
                                              uint64_t value);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, exit_t call, void* data);
void qemu_plugin_outs(const char* text);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
static uint64_t executed;

static void on_block(qemu_plugin_id_t id, struct qemu_plugin_tb* block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &executed,
                                           qemu_plugin_tb_n_insns(block));
}
static void on_exit_of_program(qemu_plugin_id_t id, void* data) {
  (void)id, (void)data;
  char text[64];
  snprintf(text, sizeof text, "instructions %llu\n", (unsigned long long)executed);
  qemu_plugin_outs(text);
}
__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info,
                                                               int argc, char** argv) {
  (void)info, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
  qemu_plugin_register_atexit_cb(id, on_exit_of_program, NULL);
  return 0;
}
