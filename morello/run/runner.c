/* Calls functions for another process: requests come on standard input, results go to standard output.

   A request is a head, then what it has of operands: a description of each, the numbers that the function takes, and
   each one's bytes. Without operands it uses those of the last request. The answer is a head, then the bytes of the
   operands that come back. "programs.h" declares the functions and their timing loops. The argument, if there is one, is
   a file of eight bytes with the number of instructions so far, see "instructions.c". */

#include "programs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Numbers that are 64 bits wide everywhere. The workspace's address is the number at `place`. */
typedef struct { int64_t which, empty, calls, operands, numbers, workspace, place; } morello_head;
/* The array begins `start` bytes after the first that is sent, which is at `shift` bytes past a multiple of `alignment`. */
typedef struct { int64_t bytes, alignment, shift, start, returns; } morello_operand;

static void *buffer(int64_t bytes, int64_t alignment) {
    void *memory = NULL;
    if (posix_memalign(&memory, (size_t)alignment, (size_t)bytes) != 0) {
        fprintf(stderr, "there is no memory for %lld bytes\n", (long long)bytes);
        exit(3);
    }
    return memory;
}

static void take(void *memory, size_t bytes) {
    if (fread(memory, 1, bytes, stdin) != bytes) {
        fprintf(stderr, "a request ends early\n");
        exit(3);
    }
}

static const volatile uint64_t *instructions(const char *path) {
    static const uint64_t none = 0;
    if (path == NULL) {
        return &none;
    }
    const void *count = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, open(path, O_RDONLY), 0);
    if (count == MAP_FAILED) {
        fprintf(stderr, "%s cannot be mapped\n", path);
        exit(3);
    }
    return count;
}

int main(int arguments, char **argument) {
    const volatile uint64_t *const executed = instructions(arguments > 1 ? argument[1] : NULL);
    static morello_operand operands[OPERANDS];
    static int64_t sent[NUMBERS];
    static ptrdiff_t numbers[NUMBERS];
    static void *memory[OPERANDS], *pointers[OPERANDS], *workspace;
    int64_t count = 0;
    morello_head asked;
    fputs("morello runs\n", stdout);
    fflush(stdout);
    while (fread(&asked, sizeof asked, 1, stdin) == 1) {
        if (asked.operands) {
            for (int64_t one = 0; one < count; ++one) {
                free(memory[one]);
            }
            free(workspace);
            workspace = NULL;
            count = asked.operands;
            take(operands, (size_t)count * sizeof *operands);
            take(sent, (size_t)asked.numbers * sizeof *sent);
            for (int64_t one = 0; one < asked.numbers; ++one) {
                numbers[one] = (ptrdiff_t)sent[one];
            }
            if (asked.workspace) {
                workspace = buffer(asked.workspace, 64);
                numbers[asked.place] = (ptrdiff_t)workspace;
            }
            for (int64_t one = 0; one < count; ++one) {
                const morello_operand *own = &operands[one];
                memory[one] = buffer(own->shift + own->bytes, own->alignment);
                take((char *)memory[one] + own->shift, (size_t)own->bytes);
                pointers[one] = (char *)memory[one] + own->shift + own->start;
            }
        }
        double measured[3]; /* CPU seconds, wall seconds, instructions */
        const morello_program *called = &morello_programs[asked.which];
        const uint64_t before = *executed;
        called->loop(asked.empty ? NULL : called->function, asked.calls, pointers, numbers, measured);
        measured[2] = (double)(*executed - before);
        fwrite(measured, sizeof measured, 1, stdout);
        for (int64_t one = 0; one < asked.operands; ++one) {
            if (operands[one].returns) {
                fwrite((char *)memory[one] + operands[one].shift, 1, (size_t)operands[one].bytes, stdout);
            }
        }
        fflush(stdout);
    }
    return 0;
}
