/*
 * Move(2×100×40, GL, GL) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c threads.c, with -fopenmp or -pthread
 *
 * Cost 62348620; memory in bytes: L1 4096, GL 16384. Schedule:
 *     tile [1, 0, 0]
 *     move 0 to GL as row_major
 *     subschedule [0] {
 *         tile [0, 1, 1]
 *         move 0 to L1
 *         move 1 to L1
 *         select Assign
 *     }
 *     tile [0, 32, 20] parallel
 *     subschedule [1] {
 *         tile [0, 1, 1]
 *         move 0 to L1
 *         move 1 to L1
 *         select Assign
 *     }
 *     move 1 to L1 as layout[0, 2, 1]
 *     subschedule [1] {
 *         tile [0, 1, 1]
 *         move 1 to L1
 *         select Assign
 *     }
 *     tile [0, 1, 1]
 *     move 0 to L1
 *     select Assign
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "threads needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#if defined(__GNUC__) && !defined(__clang__)
/* gcc would store back values next to a tile, where another thread may have stored meanwhile. */
#pragma GCC optimize("no-predictive-commoning")
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void threads(const float *restrict src, ptrdiff_t src_stride0, ptrdiff_t src_stride1, float *restrict out, void *restrict workspace, int threads2);
void threads_set_parallel(void (*run)(void (*body)(void *, int), void *data, int count));

#include <sys/types.h>
#ifndef _OPENMP
#include <pthread.h>
#include <stdint.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <time.h>
#endif

/* Declared here, as <unistd.h> has many other names. */
pid_t getpid(void);

/* Runs body(data, 0) to body(data, count - 1); returns when all have returned. */
typedef void morello_runner(void (*body)(void *, int), void *data, int count);

/* The caller's runner; NULL for that of this file. */
static morello_runner *morello_run;

/* Runs the tiles from `from` up to `to` of a parallel loop on one thread. */
typedef void morello_tiles(const void *loop, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to);

#ifndef MORELLO_KEEPS_SHARES
#define MORELLO_KEEPS_SHARES 0
#endif

#define MORELLO_SHARES 1024
#define MORELLO_CHUNKS 8

/* A parallel loop: the tiles of each of `shares` threads, in `chunks` chunks. `begun` counts those that threads took. */
typedef struct {
    morello_tiles *body;
    const void *loop;
    ptrdiff_t tiles, shares, chunks;
    ptrdiff_t begun[MORELLO_SHARES];
} morello_loop;

/* Runs the chunks of a share as a thread, until none is left. Returns the number of tiles. */
static ptrdiff_t morello_chunks(morello_loop *all, ptrdiff_t share, ptrdiff_t thread) {
    ptrdiff_t done = 0;
    for (;;) {
        const ptrdiff_t chunk = __atomic_fetch_add(&all->begun[share], 1, __ATOMIC_RELAXED);
        if (chunk >= all->chunks) {
            return done;
        }
        const ptrdiff_t whole = all->shares * all->chunks, at = share * all->chunks + chunk;
        const ptrdiff_t from = all->tiles * at / whole, to = all->tiles * (at + 1) / whole;
        all->body(all->loop, thread, from, to);
        done += to - from;
    }
}

/* Runs a thread's own share, then the remaining chunks of the others. Returns the number of tiles. */
static ptrdiff_t morello_share(morello_loop *all, ptrdiff_t thread) {
    ptrdiff_t done = 0;
    for (ptrdiff_t share = thread; share < (MORELLO_KEEPS_SHARES ? thread + 1 : thread + all->shares); ++share) {
        done += morello_chunks(all, share % all->shares, thread);
    }
    return done;
}

#ifndef _OPENMP
enum { MORELLO_IDLE, MORELLO_GIVEN, MORELLO_BUSY, MORELLO_DISMISSED };

typedef struct {
    morello_loop *all;
    ptrdiff_t thread;
    int state, apart;
    pid_t id;
    pthread_t handle;
} morello_member;

#ifdef __linux__
long syscall(long number, ...);
#endif

/* The threads of this program other than its callers. One loop has them at a time, in the process `taken`; the fields
   that only this loop uses are not atomic. */
static struct {
    pid_t taken, process;
    int asleep;
    ptrdiff_t size;
    /* The last loop that found a thread asleep: its time on one thread, and when it ended. */
    int64_t took, ended;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    morello_member member[MORELLO_SHARES];
} morello_team;

static int morello_is_idle(const morello_member *member) {
    return __atomic_load_n(&member->state, __ATOMIC_SEQ_CST) == MORELLO_IDLE;
}

/* Returns whether the member went from one state to another. */
static int morello_turns(morello_member *member, int from, int to) {
    return __atomic_compare_exchange_n(&member->state, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Returns the CPU that the calling thread is on, or -1 if that is not known. */
static int morello_cpu(void) {
#ifdef SYS_getcpu
    unsigned cpu;
    if (syscall(SYS_getcpu, &cpu, NULL, NULL) == 0) {
        return (int)cpu;
    }
#endif
    return -1;
}

/* Excludes a CPU from a member's CPUs if it has others, or includes it again. Does nothing before the member runs, or
   if the system has no such call. */
static void morello_allow(morello_member *member, int cpu, int allowed) {
#ifdef SYS_sched_setaffinity
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[8192 / BITS] = {0};
    const pid_t id = __atomic_load_n(&member->id, __ATOMIC_SEQ_CST);
    if (id == 0 || cpu < 0 || cpu >= 8192 || member->apart != allowed
        || syscall(SYS_sched_getaffinity, id, sizeof mask, mask) < 0) {
        return;
    }
    const unsigned long bit = 1UL << cpu % BITS;
    if ((mask[cpu / BITS] & bit) == (allowed ? 0 : bit)) {
        mask[cpu / BITS] ^= bit;
        member->apart = syscall(SYS_sched_setaffinity, id, sizeof mask, mask) == 0 ? !allowed : allowed;
    }
#else
    (void)member, (void)cpu, (void)allowed;
#endif
}

/* Moves a member from the caller's CPU, if it is there and may run on another. */
static void morello_part(morello_member *member) {
    const int cpu = morello_cpu();
    morello_allow(member, cpu, 0);
    morello_allow(member, cpu, 1);
}

/* Waits until a member is idle, or busy if `idle` is 0: polls for a while, then sleeps until any state changes. */
static void morello_await(morello_member *member, int idle) {
    for (;;) {
        for (int polls = 0; polls < 200000; ++polls) {
            if (morello_is_idle(member) == idle) {
                return;
            }
        }
        if (idle) {
            morello_part(member);
        }
        pthread_mutex_lock(&morello_team.lock);
        __atomic_add_fetch(&morello_team.asleep, 1, __ATOMIC_SEQ_CST);
        if (morello_is_idle(member) != idle) {
            pthread_cond_wait(&morello_team.changed, &morello_team.lock);
        }
        __atomic_sub_fetch(&morello_team.asleep, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&morello_team.lock);
    }
}

/* Wakes sleeping threads: the caller, or members with work. Members wake on other CPUs than the caller's, as some
   schedulers leave both on one. A thread counts itself asleep before its last check of the state, so either it is
   counted here, or it sees the new state. The lock is free once threads that checked are asleep. */
static void morello_wake(ptrdiff_t given) {
    if (!__atomic_load_n(&morello_team.asleep, __ATOMIC_SEQ_CST)) {
        return;
    }
    const int cpu = given ? morello_cpu() : -1;
    for (ptrdiff_t t = 0; t < given; ++t) {
        morello_allow(&morello_team.member[t], cpu, 0);
    }
    pthread_mutex_lock(&morello_team.lock);
    pthread_mutex_unlock(&morello_team.lock);
    pthread_cond_broadcast(&morello_team.changed);
    for (ptrdiff_t t = 0; t < given; ++t) {
        morello_allow(&morello_team.member[t], cpu, 1);
    }
}

static int64_t morello_nanoseconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns the time if a thread is asleep, else 0. */
static int64_t morello_start(void) {
    return __atomic_load_n(&morello_team.asleep, __ATOMIC_SEQ_CST) ? morello_nanoseconds() : 0;
}

/* Returns whether not to wake threads: the loop is short, and the last one ended a while ago. */
static int morello_is_short(int64_t start, ptrdiff_t wanted) {
    return start && morello_team.size >= wanted && morello_team.took < 100000
        && start - morello_team.ended > 100000;
}

/* Estimates the time of all tiles on one thread from the `done` tiles that the caller has run since. Each loop does so,
   divided or not, so that one disturbed measurement does not last. */
static void morello_estimate(int64_t since, ptrdiff_t done, ptrdiff_t tiles) {
    if (since && done) {
        morello_team.took = (int64_t)((double)(morello_nanoseconds() - since) * (double)tiles / (double)done);
    }
}

static void *morello_work(void *given) {
    morello_member *const member = given;
#ifdef SYS_gettid
    __atomic_store_n(&member->id, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
#endif
    for (;;) {
        morello_await(member, 0);
        if (morello_turns(member, MORELLO_GIVEN, MORELLO_BUSY)) {
            morello_share(member->all, member->thread);
            __atomic_store_n(&member->state, MORELLO_IDLE, __ATOMIC_SEQ_CST);
            morello_wake(0);
        } else if (__atomic_load_n(&member->state, __ATOMIC_SEQ_CST) == MORELLO_DISMISSED) {
            return NULL;
        }
    }
}

/* Takes the team, unless another loop of this process has it. Returns whether it did. */
static int morello_take_team(void) {
    const pid_t self = getpid();
    pid_t holder = __atomic_load_n(&morello_team.taken, __ATOMIC_RELAXED);
    if (holder == self
        || !__atomic_compare_exchange_n(&morello_team.taken, &holder, self, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return 0;
    }
    if (morello_team.process != self) {
        /* The first loop of a process, which has none of the threads of a parent that forked it. */
        morello_team.process = self;
        morello_team.size = morello_team.asleep = 0;
        pthread_mutex_init(&morello_team.lock, NULL);
        pthread_cond_init(&morello_team.changed, NULL);
    }
    return 1;
}

/* Starts missing threads. Returns the number of threads that help. */
static ptrdiff_t morello_helpers(ptrdiff_t wanted) {
    while (morello_team.size < wanted) {
        morello_member *const member = &morello_team.member[morello_team.size];
        member->state = MORELLO_IDLE;
        member->id = member->apart = 0;
        if (pthread_create(&member->handle, NULL, morello_work, member) != 0) {
            break;
        }
        ++morello_team.size;
    }
    return morello_team.size < wanted ? morello_team.size : wanted;
}

/* Ends the threads before their code is unloaded. */
__attribute__((destructor)) static void morello_dismiss(void) {
    if (morello_team.process != getpid() || !morello_take_team()) {
        return;
    }
    for (ptrdiff_t t = 0; t < morello_team.size; ++t) {
        __atomic_store_n(&morello_team.member[t].state, MORELLO_DISMISSED, __ATOMIC_SEQ_CST);
    }
    morello_wake(0);
    for (ptrdiff_t t = 0; t < morello_team.size; ++t) {
        pthread_join(morello_team.member[t].handle, NULL);
    }
}
#endif

static void morello_numbered(void *data, int thread) {
    morello_share(data, thread);
}

/* Runs `body` on `tiles` tiles. Threads that have run their share take chunks of the others, so that none waits for one
   that the system does not run. */
static void morello_parallel(morello_tiles *body, const void *loop, ptrdiff_t tiles, int threads) {
    const ptrdiff_t most = tiles < MORELLO_SHARES ? tiles : MORELLO_SHARES;
    const ptrdiff_t shares = threads < 1 ? 1 : threads < most ? threads : most;
    if (shares == 1) {
        body(loop, 0, 0, tiles);
        return;
    }
    morello_loop all;
    all.body = body, all.loop = loop, all.tiles = tiles, all.shares = shares;
    all.chunks = tiles / shares < MORELLO_CHUNKS ? tiles / shares : MORELLO_CHUNKS;
    for (ptrdiff_t t = 0; t < shares; ++t) {
        all.begun[t] = 0;
    }
    morello_runner *const run = __atomic_load_n(&morello_run, __ATOMIC_ACQUIRE);
    if (run) {
        run(morello_numbered, &all, (int)shares);
        return;
    }
#ifdef _OPENMP
    static pid_t process;
    pid_t first = 0;
    const pid_t self = getpid();
    if (!__atomic_compare_exchange_n(&process, &first, self, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && first != self) {
        /* A forked process has none of its parent's threads, and some OpenMP runtimes would wait for them. */
        body(loop, 0, 0, tiles);
        return;
    }
    #pragma omp parallel for num_threads((int)shares) schedule(static, 1)
    for (ptrdiff_t t = 0; t < shares; ++t) {
        morello_share(&all, t);
    }
#else
    const int taken = morello_take_team();
    const int64_t start = taken ? morello_start() : 0;
    const int alone = morello_is_short(start, shares - 1);
    const ptrdiff_t helpers = taken && !alone ? morello_helpers(shares - 1) : 0;
    for (ptrdiff_t t = 0; t < helpers; ++t) {
        morello_member *const member = &morello_team.member[t];
        member->all = &all, member->thread = t + 1;
        __atomic_store_n(&member->state, MORELLO_GIVEN, __ATOMIC_SEQ_CST);
    }
    if (helpers) {
        morello_wake(helpers);
    }
    const int64_t since = start ? morello_nanoseconds() : 0;
    ptrdiff_t done = morello_share(&all, 0);
    for (ptrdiff_t t = helpers + 1; MORELLO_KEEPS_SHARES && t < shares; ++t) {
        done += morello_share(&all, t);
    }
    morello_estimate(since, done, tiles);
    for (ptrdiff_t t = 0; t < helpers; ++t) {
        morello_member *const member = &morello_team.member[t];
        /* A member that has not started by now has nothing left to run. */
        if (!MORELLO_KEEPS_SHARES && morello_turns(member, MORELLO_GIVEN, MORELLO_IDLE)) {
            morello_part(member);
        } else {
            morello_await(member, 1);
        }
    }
    if (taken) {
        if (start) {
            morello_team.ended = morello_nanoseconds();
        }
        __atomic_store_n(&morello_team.taken, 0, __ATOMIC_RELEASE);
    }
#endif
}

struct threads_part1 {
    const float *restrict src_gl;
    float *restrict out;
    ptrdiff_t i0;
};

static void threads_part1_tiles(const float *restrict const src_gl, float *restrict const out, const ptrdiff_t i0, ptrdiff_t from, ptrdiff_t to) {
    for (ptrdiff_t tile = from; tile < to; ++tile) {
        const ptrdiff_t i1 = tile / 2;
        const ptrdiff_t i2 = tile % 2;
        /* Move(1×32×20, GL, GL): move 1 to L1 as layout[0, 2, 1] */
        {
            _Alignas(64) float out_l1[640];
            /* Move(1×32×20, GL, L1): tile [0, 1, 1] */
            for (ptrdiff_t i1_2 = 0; i1_2 < 32; ++i1_2) {
                for (ptrdiff_t i2_2 = 0; i2_2 < 20; ++i2_2) {
                    /* Move(1×1×1, L1, L1): Assign */
                    out_l1[32 * i2_2 + i1_2] = src_gl[1280 * i1 + 40 * i1_2 + 20 * i2 + i2_2];
                }
            }
            /* Move(1×32×20, L1, GL): tile [0, 1, 1] */
            for (ptrdiff_t i1_2 = 0; i1_2 < 32; ++i1_2) {
                for (ptrdiff_t i2_2 = 0; i2_2 < 20; ++i2_2) {
                    /* Move(1×1×1, L1, L1): Assign */
                    out[4000 * i0 + 1280 * i1 + 40 * i1_2 + 20 * i2 + i2_2] = out_l1[32 * i2_2 + i1_2];
                }
            }
        }
    }
}

static void threads_part1(const void *given, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to) {
    const struct threads_part1 *const loop = given;
    (void)thread;
    threads_part1_tiles(loop->src_gl, loop->out, loop->i0, from, to);
}

void threads(const float *restrict src, ptrdiff_t src_stride0, ptrdiff_t src_stride1, float *restrict out, void *restrict workspace, int threads2) {
    /* Move(2×100×40, GL, GL): tile [1, 0, 0] */
    for (ptrdiff_t i0 = 0; i0 < 2; ++i0) {
        /* Move(1×100×40, GL, GL): move 0 to GL as row_major */
        {
            float *restrict const src_gl = (float *)(workspace);
            /* Move(1×100×40, GL, GL): tile [0, 1, 1] */
            for (ptrdiff_t i1 = 0; i1 < 100; ++i1) {
                for (ptrdiff_t i2 = 0; i2 < 40; ++i2) {
                    /* Move(1×1×1, L1, L1): Assign */
                    src_gl[40 * i1 + i2] = src[i2 + i1 * src_stride1 + i0 * src_stride0];
                }
            }
            /* Move(1×100×40, GL, GL): tile [0, 32, 20] parallel */
            {
                const struct threads_part1 given = {src_gl, out, i0};
                morello_parallel(threads_part1, &given, 6, threads2);
            }
            /* Move(1×100×40, GL, GL): tile [0, 32, 20] parallel (boundary) */
            for (ptrdiff_t i2 = 0; i2 < 2; ++i2) {
                /* Move(1×4×20, GL, GL): tile [0, 1, 1] */
                for (ptrdiff_t i1 = 0; i1 < 4; ++i1) {
                    for (ptrdiff_t i2_2 = 0; i2_2 < 20; ++i2_2) {
                        /* Move(1×1×1, L1, L1): Assign */
                        out[4000 * i0 + 40 * i1 + 20 * i2 + i2_2 + 3840] = src_gl[40 * i1 + 20 * i2 + i2_2 + 3840];
                    }
                }
            }
        }
    }
}

void threads_set_parallel(void (*run)(void (*body)(void *, int), void *data, int count)) {
    __atomic_store_n(&morello_run, run, __ATOMIC_RELEASE);
}
