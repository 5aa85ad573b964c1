/* A plugin of qemu that counts the instructions of a program in a file of eight bytes, which the program may map, too.

   It is built without qemu's header, which few systems have: these declarations are its API since version 4.2. */

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, void (*call)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(
    struct qemu_plugin_tb *block, void (*call)(unsigned, void *), int registers, void *data);

int qemu_plugin_version = VERSION;
static uint64_t *count;

static void executed(unsigned cpu, void *instructions) {
    (void)cpu;
    __atomic_fetch_add(count, (uint64_t)(uintptr_t)instructions, __ATOMIC_RELAXED);
}

static void translated(uint64_t plugin, struct qemu_plugin_tb *block) {
    (void)plugin;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

/* Its argument is count=FILE. */
int qemu_plugin_install(uint64_t plugin, const void *emulator, int number, char **arguments) {
    (void)emulator;
    const char *path = number == 1 ? strchr(arguments[0], '=') : NULL;
    const int file = path ? open(path + 1, O_RDWR) : -1;
    count = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (count == MAP_FAILED) {
        return 1;
    }
    *count = 0;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    return 0;
}
