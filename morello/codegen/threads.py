"""The C that shares the tiles of a parallel loop among threads.

A program runs with OpenMP where it is compiled so, else with a team of threads of its own. They are started when a
loop first asks for them and stay as long as the program is loaded, since starting one takes as long as a product of
100³. Who computes a tile makes no difference to it, so results are the same bits for any number of threads.
"""

from __future__ import annotations

#: Threads that one loop uses at most.
MAX_THREADS = 1024
#: How often a thread looks for news before it sleeps, some 0.1 ms: waking takes virtual machines 20 µs and more. It
#: does not let others run meanwhile, or two threads may share a CPU for long.
_PATIENCE = 200_000

_TEAM = f"""\
enum {{ MORELLO_IDLE, MORELLO_ASKED, MORELLO_DISMISSED }};

typedef struct {{
    morello_tiles *body;
    const void *loop;
    ptrdiff_t thread, from, to;
    int state;
    pthread_t id;
}} morello_member;

/* Declared here, as <unistd.h> has many other names. */
pid_t getpid(void);

/* The threads of this program beside those that call it. One loop has them at a time. */
static struct {{
    int taken, asleep;
    pid_t process;
    ptrdiff_t size;
    pthread_mutex_t lock;
    pthread_cond_t news;
    morello_member member[{MAX_THREADS}];
}} morello_team;

static int morello_is_idle(const morello_member *member) {{
    return __atomic_load_n(&member->state, __ATOMIC_SEQ_CST) == MORELLO_IDLE;
}}

/* Waits until a member is idle, or no more: awake for a while, then asleep until there is news. */
static void morello_await(const morello_member *member, int idle) {{
    for (int looks = 0; looks < {_PATIENCE}; ++looks) {{
        if (morello_is_idle(member) == idle) {{
            return;
        }}
    }}
    pthread_mutex_lock(&morello_team.lock);
    __atomic_add_fetch(&morello_team.asleep, 1, __ATOMIC_SEQ_CST);
    while (morello_is_idle(member) != idle) {{
        pthread_cond_wait(&morello_team.news, &morello_team.lock);
    }}
    __atomic_sub_fetch(&morello_team.asleep, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&morello_team.lock);
}}

/* Who goes to sleep says so before a last look: either the sleeper is seen here, or it sees what changed before. */
static void morello_tell(void) {{
    if (__atomic_load_n(&morello_team.asleep, __ATOMIC_SEQ_CST)) {{
        pthread_mutex_lock(&morello_team.lock);
        pthread_cond_broadcast(&morello_team.news);
        pthread_mutex_unlock(&morello_team.lock);
    }}
}}

static void *morello_work(void *given) {{
    morello_member *const member = given;
    for (;;) {{
        morello_await(member, 0);
        if (__atomic_load_n(&member->state, __ATOMIC_SEQ_CST) == MORELLO_DISMISSED) {{
            return NULL;
        }}
        member->body(member->loop, member->thread, member->from, member->to);
        __atomic_store_n(&member->state, MORELLO_IDLE, __ATOMIC_SEQ_CST);
        morello_tell();
    }}
}}

/* Takes the team, unless another loop has it or there is none. Returns how many of its threads are to help. */
static ptrdiff_t morello_take_team(ptrdiff_t wanted) {{
    if (__atomic_exchange_n(&morello_team.taken, 1, __ATOMIC_ACQUIRE)) {{
        return 0;
    }}
    if (morello_team.process != getpid()) {{
        /* The first loop; or that of a forked process, which has none of its parent's threads. */
        morello_team.process = getpid();
        morello_team.size = morello_team.asleep = 0;
        pthread_mutex_init(&morello_team.lock, NULL);
        pthread_cond_init(&morello_team.news, NULL);
    }}
    while (morello_team.size < wanted) {{
        morello_member *const member = &morello_team.member[morello_team.size];
        member->state = MORELLO_IDLE;
        if (pthread_create(&member->id, NULL, morello_work, member) != 0) {{
            break;
        }}
        ++morello_team.size;
    }}
    if (morello_team.size == 0) {{
        __atomic_store_n(&morello_team.taken, 0, __ATOMIC_RELEASE);
    }}
    return morello_team.size < wanted ? morello_team.size : wanted;
}}

/* Ends the threads before their code is unloaded. */
__attribute__((destructor)) static void morello_dismiss(void) {{
    if (morello_team.process != getpid() || __atomic_exchange_n(&morello_team.taken, 1, __ATOMIC_ACQUIRE)) {{
        return;
    }}
    for (ptrdiff_t t = 0; t < morello_team.size; ++t) {{
        __atomic_store_n(&morello_team.member[t].state, MORELLO_DISMISSED, __ATOMIC_SEQ_CST);
    }}
    morello_tell();
    for (ptrdiff_t t = 0; t < morello_team.size; ++t) {{
        pthread_join(morello_team.member[t].id, NULL);
    }}
}}
"""

_SHARED = """\
    const ptrdiff_t helpers = morello_take_team(shares - 1);
    for (ptrdiff_t t = 0; t < helpers; ++t) {
        morello_member *const member = &morello_team.member[t];
        member->body = body, member->loop = loop, member->thread = t + 1;
        member->from = tiles * (t + 1) / shares, member->to = tiles * (t + 2) / shares;
        __atomic_store_n(&member->state, MORELLO_ASKED, __ATOMIC_SEQ_CST);
    }
    if (helpers) {
        morello_tell();
    }
    body(loop, 0, 0, tiles / shares);
    for (ptrdiff_t t = helpers + 1; t < shares; ++t) {
        body(loop, t, tiles * t / shares, tiles * (t + 1) / shares);
    }
    for (ptrdiff_t t = 0; t < helpers; ++t) {
        morello_await(&morello_team.member[t], 1);
    }
    if (helpers) {
        __atomic_store_n(&morello_team.taken, 0, __ATOMIC_RELEASE);
    }
"""

#: Divides tiles among threads. Names that start with `morello_` are given to nothing else.
RUNTIME = f"""\
#ifndef _OPENMP
#include <pthread.h>
#include <sys/types.h>
#endif

/* The tiles from `from` up to `to` of a parallel loop, as the share of one thread. */
typedef void morello_tiles(const void *loop, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to);

#ifndef _OPENMP
{_TEAM}#endif

/* Runs `body` on `tiles` tiles. Shares for which there is no thread to be had are run by the caller. */
static void morello_parallel(morello_tiles *body, const void *loop, ptrdiff_t tiles, int threads) {{
    const ptrdiff_t most = tiles < {MAX_THREADS} ? tiles : {MAX_THREADS};
    const ptrdiff_t shares = threads < 1 ? 1 : threads < most ? threads : most;
    if (shares == 1) {{
        body(loop, 0, 0, tiles);
        return;
    }}
#ifdef _OPENMP
    #pragma omp parallel for num_threads((int)shares) schedule(static, 1)
    for (ptrdiff_t t = 0; t < shares; ++t) {{
        body(loop, t, tiles * t / shares, tiles * (t + 1) / shares);
    }}
#else
{_SHARED}#endif
}}
"""
