/* The tiles of a thread: sixteen rows of 64 bytes each, while any function that uses them runs. */
#ifndef MORELLO_ASK_FOR_TILES
/* Linux grants them to a process that asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA). */
#include <sys/syscall.h>
#include <unistd.h>
#define MORELLO_ASK_FOR_TILES() (syscall(SYS_arch_prctl, 0x1023, 18) == 0)
#endif

static _Thread_local int morello_tiles_users;

static void morello_tiles_begin(void) {
    static const struct {
        uint8_t palette, first_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {
        .palette = 1,
        .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    static int granted;
    if (morello_tiles_users++) {
        return;
    }
    if (!__atomic_load_n(&granted, __ATOMIC_RELAXED)) {
        if (!MORELLO_ASK_FOR_TILES()) {
            fputs("the system does not grant this process the tiles of AMX, which code for x86_amx needs\n", stderr);
            abort();
        }
        __atomic_store_n(&granted, 1, __ATOMIC_RELAXED);
    }
    _tile_loadconfig(&shape);
}

static void morello_tiles_end(void) {
    if (!--morello_tiles_users) {
        _tile_release();
    }
}
