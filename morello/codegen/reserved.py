"""Knows the names that C code cannot give to functions and variables of its own."""

from __future__ import annotations

from morello.errors import EmitError

#: The longest name of a function: files are named after it, and its macros add to it.
LONGEST = 100

#: Words of C11, C23, GNU C and, as headers are read by it too, of C++.
KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
    virtual void volatile wchar_t while xor xor_eq
    """.split()
)

#: Macros that compilers predefine, or that headers define which emitted C, or what runs it, includes.
MACROS = frozenset(
    """
    BIG_ENDIAN BUFSIZ BYTE_ORDER CLOCKS_PER_SEC CLOCK_BOOTTIME CLOCK_BOOTTIME_ALARM CLOCK_MONOTONIC
    CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME CLOCK_REALTIME_ALARM
    CLOCK_REALTIME_COARSE CLOCK_TAI CLOCK_THREAD_CPUTIME_ID EOF EXIT_FAILURE EXIT_SUCCESS FD_CLR FD_ISSET FD_SET
    FD_SETSIZE FD_ZERO FILENAME_MAX FOPEN_MAX FP_FAST_FMA FP_FAST_FMAF FP_ILOGB0 FP_ILOGBNAN FP_INFINITE FP_NAN
    FP_NORMAL FP_SUBNORMAL FP_ZERO HUGE_VAL HUGE_VALF HUGE_VALL I INFINITY INT16_C INT16_MAX INT16_MIN INT32_C
    INT32_MAX INT32_MIN INT64_C INT64_MAX INT64_MIN INT8_C INT8_MAX INT8_MIN INTMAX_C INTMAX_MAX INTMAX_MIN
    INTPTR_MAX INTPTR_MIN INT_FAST16_MAX INT_FAST16_MIN INT_FAST32_MAX INT_FAST32_MIN INT_FAST64_MAX INT_FAST64_MIN
    INT_FAST8_MAX INT_FAST8_MIN INT_LEAST16_MAX INT_LEAST16_MIN INT_LEAST32_MAX INT_LEAST32_MIN INT_LEAST64_MAX
    INT_LEAST64_MIN INT_LEAST8_MAX INT_LEAST8_MIN LITTLE_ENDIAN L_ctermid L_tmpnam MATH_ERREXCEPT MATH_ERRNO
    MB_CUR_MAX M_1_PI M_2_PI M_2_SQRTPI M_E M_LN10 M_LN2 M_LOG10E M_LOG2E M_PI M_PI_2 M_PI_4 M_SQRT1_2 M_SQRT2 NAN
    NFDBITS NULL PDP_ENDIAN PPC PPC64 PTRDIFF_MAX PTRDIFF_MIN P_tmpdir RAND_MAX SCHED_FIFO SCHED_OTHER SCHED_RR
    SEEK_CUR SEEK_END SEEK_SET SIG_ATOMIC_MAX SIG_ATOMIC_MIN SIZE_MAX TIMER_ABSTIME TIME_UTC TMP_MAX UINT16_C
    UINT16_MAX UINT32_C UINT32_MAX UINT64_C UINT64_MAX UINT8_C UINT8_MAX UINTMAX_C UINTMAX_MAX UINTPTR_MAX
    UINT_FAST16_MAX UINT_FAST32_MAX UINT_FAST64_MAX UINT_FAST8_MAX UINT_LEAST16_MAX UINT_LEAST32_MAX
    UINT_LEAST64_MAX UINT_LEAST8_MAX WCHAR_MAX WCHAR_MIN WCONTINUED WEXITED WEXITSTATUS WIFCONTINUED WIFEXITED
    WIFSIGNALED WIFSTOPPED WINT_MAX WINT_MIN WNOHANG WNOWAIT WSTOPPED WSTOPSIG WTERMSIG WUNTRACED alloca assert
    be16toh be32toh be64toh complex errno fpclassify fread_unlocked fwrite_unlocked hpux htobe16 htobe32 htobe64
    htole16 htole32 htole64 i386 isfinite isgreater isgreaterequal isinf isless islessequal islessgreater isnan
    isnormal isunordered le16toh le32toh le64toh linux math_errhandling mips noreturn offsetof sched_priority
    signbit sparc stderr stdin stdout sun unix vax
    va_arg va_copy va_end va_start
    """.split()
)

#: Functions and variables of the C library, some of which compilers know by name. A program that defines its own
#: `read` takes that of all libraries away.
LIBRARY = frozenset(
    """
    FILE a64l abort abs access acct acos acosf acosh acoshf acoshl acosl alarm aligned_alloc arc4random
    arc4random_buf arc4random_uniform asctime asctime_r asin asinf asinh asinhf asinhl asinl at_quick_exit atan
    atan2 atan2f atan2l atanf atanh atanhf atanhl atanl atexit atof atoi atol atoll bcmp bcopy brk bsearch btowc
    bzero c16rtomb c32rtomb cabs cabsf cabsl cacos cacosf cacosh cacoshf cacoshl cacosl call_once calloc carg cargf
    cargl casin casinf casinh casinhf casinhl casinl catan catanf catanh catanhf catanhl catanl cbrt cbrtf cbrtl
    ccos ccosf ccosh ccoshf ccoshl ccosl ceil ceilf ceilf128 ceilf32 ceilf32x ceilf64 ceilf64x ceill cexp cexpf
    cexpl chdir chown chroot cimag cimagf cimagl clearenv clearerr clearerr_unlocked clock clock_getcpuclockid
    clock_getres clock_gettime clock_nanosleep clock_settime clog clog10 clog10f clog10l clogf clogl close closefrom
    cnd_broadcast cnd_destroy cnd_init cnd_signal cnd_timedwait cnd_wait confstr conj conjf conjl copysign copysignf
    copysignf128 copysignf32 copysignf32x copysignf64 copysignf64x copysignl cos cosf cosh coshf coshl cosl cpow
    cpowf cpowl cproj cprojf cprojl creal crealf creall creat crypt csin csinf csinh csinhf csinhl csinl csqrt
    csqrtf csqrtl ctan ctanf ctanh ctanhf ctanhl ctanl ctermid ctime ctime_r daemon daylight dcgettext dgettext
    difftime div dprintf drand48 drand48_r drem dremf dreml dup dup2 duplocale dysize ecvt ecvt_r endusershell
    erand48 erand48_r erf erfc erfcf erfcl erff erfl execl execle execlp execv execve execvp exit exp exp10 exp10f
    exp10l exp2 exp2f exp2l expf expl explicit_bzero expm1 expm1f expm1l fabs fabsf fabsf128 fabsf32 fabsf32x
    fabsf64 fabsf64x fabsl faccessat fchdir fchown fchownat fclose fcntl fcvt fcvt_r fd_mask fd_set fdatasync fdim
    fdimf fdiml fdopen feclearexcept fegetenv fegetexceptflag fegetround feholdexcept feof feof_unlocked
    feraiseexcept ferror ferror_unlocked fesetenv fesetexceptflag fesetround fetestexcept feupdateenv fexecve fflush
    fflush_unlocked ffs ffsl ffsll fgetc fgetc_unlocked fgetpos fgets fgetwc fgetws fileno fileno_unlocked finite
    finitef finitel flockfile floor floorf floorf128 floorf32 floorf32x floorf64 floorf64x floorl fls flsl flsll fma
    fmaf fmaf128 fmaf32 fmaf32x fmaf64 fmaf64x fmal fmax fmaxf fmaxf128 fmaxf32 fmaxf32x fmaxf64 fmaxf64x fmaxl
    fmemopen fmin fminf fminf128 fminf32 fminf32x fminf64 fminf64x fminl fmod fmodf fmodl fopen fork fpathconf
    fprintf fputc fputc_unlocked fputs fputs_unlocked fputwc fputws fread free freelocale freopen frexp frexpf
    frexpl fscanf fseek fseeko fsetpos fsync ftell ftello ftruncate ftrylockfile funlockfile fwide fwprintf fwrite
    fwscanf gamma gammaf gammal gcvt getc getc_unlocked getchar getchar_unlocked getcwd getdelim getdomainname
    getdtablesize getegid getentropy getenv geteuid getgid getgroups gethostid gethostname getline getloadavg
    getlogin getlogin_r getopt getpagesize getpass getpgid getpgrp getpid getppid getsid getsubopt gettext getuid
    getusershell getw getwc getwchar getwd gmtime gmtime_r gsignal heapsort hypot hypotf hypotl ilogb ilogbf ilogbl
    imaxabs imaxdiv index initstate initstate_r isalnum isalpha isascii isatty isblank iscntrl isdigit isgraph
    isinff isinfl islower isnanf isnanl isprint ispunct isspace isupper iswalnum iswalnum_l iswalpha iswalpha_l
    iswblank iswblank_l iswcntrl iswcntrl_l iswctype iswctype_l iswdigit iswdigit_l iswgraph iswgraph_l iswlower
    iswlower_l iswprint iswprint_l iswpunct iswpunct_l iswspace iswspace_l iswupper iswupper_l iswxdigit iswxdigit_l
    isxdigit j0 j0f j0l j1 j1f j1l jmp_buf jn jnf jnl jrand48 jrand48_r kill killpg l64a labs lchown lcong48
    lcong48_r ldexp ldexpf ldexpl ldiv lgamma lgamma_r lgammaf lgammaf_r lgammal lgammal_r link linkat llabs lldiv
    llrint llrintf llrintl llround llroundf llroundl localeconv localtime localtime_r lockf log log10 log10f log10l
    log1p log1pf log1pl log2 log2f log2l logb logbf logbl logf logl longjmp lrand48 lrand48_r lrint lrintf lrintl
    lround lroundf lroundl lseek main malloc mblen mbrlen mbrtoc16 mbrtoc32 mbrtowc mbsinit mbsnrtowcs mbsrtowcs
    mbstowcs mbtowc memccpy memchr memcmp memcpy memmem memmove memory_order memory_order_acq_rel
    memory_order_acquire memory_order_consume memory_order_relaxed memory_order_release memory_order_seq_cst mempcpy
    memset memset_explicit memset_pattern16 memset_pattern4 memset_pattern8 mergesort mkdtemp mkstemp mkstemps
    mktemp mktime modf modff modfl mrand48 mrand48_r mtx_destroy mtx_init mtx_lock mtx_plain mtx_recursive mtx_timed
    mtx_timedlock mtx_trylock mtx_unlock nan nanf nanf128 nanf32 nanf32x nanf64 nanf64x nanl nanosleep nearbyint
    nearbyintf nearbyintf128 nearbyintf32 nearbyintf32x nearbyintf64 nearbyintf64x nearbyintl newlocale nextafter
    nextafterf nextafterl nexttoward nexttowardf nexttowardl nice nrand48 nrand48_r on_exit once_flag open
    open_memstream open_wmemstream openat optarg opterr optind optopt pathconf pause pclose perror pipe popen
    posix_fadvise posix_fallocate posix_memalign pow pow10 pow10f pow10l powf powl pread printf profil pselect
    psiginfo psignal psort putc putc_unlocked putchar putchar_unlocked putenv puts putw putwc putwchar pwrite qecvt
    qecvt_r qfcvt qfcvt_r qgcvt qsort quick_exit radixsort raise rand rand_r random random_r read readlink
    readlinkat realloc reallocarray realpath remainder remainderf remainderl remove remquo remquof remquol rename
    renameat revoke rewind rindex rint rintf rintf128 rintf32 rintf32x rintf64 rintf64x rintl rmdir round roundeven
    roundevenf roundevenf128 roundevenf32 roundevenf32x roundevenf64 roundevenf64x roundevenl roundf roundf128
    roundf32 roundf32x roundf64 roundf64x roundl rpmatch sbrk scalb scalbf scalbl scalbln scalblnf scalblnl scalbn
    scalbnf scalbnl scanf sched_get_priority_max sched_get_priority_min sched_getparam sched_getscheduler
    sched_rr_get_interval sched_setparam sched_setscheduler sched_yield seed48 seed48_r select setbuf setbuffer
    setdomainname setegid setenv seteuid setgid sethostid sethostname setlinebuf setlocale setlogin setpgid setpgrp
    setregid setreuid setsid setstate setstate_r setuid setusershell setvbuf sigaction sigaddset sigaltstack
    sigblock sigdelset sigemptyset sigfillset siggetmask siginterrupt sigismember sigjmp_buf siglongjmp signal
    signgam significand significandf significandl sigpending sigprocmask sigqueue sigreturn sigsetmask sigstack
    sigsuspend sigtimedwait sigwait sigwaitinfo sin sincos sincosf sincosl sinf sinh sinhf sinhl sinl sleep snprintf
    sprintf sqrt sqrtf sqrtf128 sqrtf32 sqrtf32x sqrtf64 sqrtf64x sqrtl srand srand48 srand48_r srandom srandom_r
    sscanf ssignal stpcpy stpncpy strcasecmp strcasecmp_l strcat strchr strcmp strcoll strcoll_l strcpy strcspn
    strdup strerror strerror_l strerror_r strfmon strftime strftime_l strlcat strlcpy strlen strncasecmp
    strncasecmp_l strncat strncmp strncpy strndup strnlen strnstr strpbrk strrchr strsep strsignal strspn strstr
    strtod strtof strtoimax strtok strtok_r strtol strtold strtoll strtoq strtoul strtoull strtoumax strtouq strxfrm
    strxfrm_l swab swprintf swscanf symlink symlinkat sync syscall sysconf system tan tanf tanh tanhf tanhl tanl
    tcgetpgrp tcsetpgrp tempnam tgamma tgammaf tgammal thrd_busy thrd_create thrd_current thrd_detach thrd_equal
    thrd_error thrd_exit thrd_join thrd_nomem thrd_sleep thrd_success thrd_timedout thrd_yield time timegm timelocal
    timer_create timer_delete timer_getoverrun timer_gettime timer_settime timespec_get timezone tmpfile tmpnam
    tmpnam_r toascii tolower toupper towctrans towctrans_l towlower towlower_l towupper towupper_l trunc truncate
    truncf truncf128 truncf32 truncf32x truncf64 truncf64x truncl tss_create tss_delete tss_get tss_set ttyname
    ttyname_r ttyslot tzname tzset u_char u_int u_long u_short ualarm uint ulong ungetc ungetwc unlink unlinkat
    unsetenv uselocale ushort usleep va_list valloc vdprintf vfork vfprintf vfscanf vfwprintf vfwscanf vhangup
    vprintf vscanf vsnprintf vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf wcpcpy wcpncpy wcrtomb wcscasecmp
    wcscasecmp_l wcscat wcschr wcscmp wcscoll wcscoll_l wcscpy wcscspn wcsdup wcsftime wcslen wcsncasecmp
    wcsncasecmp_l wcsncat wcsncmp wcsncpy wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod wcstof
    wcstoimax wcstok wcstol wcstold wcstoll wcstombs wcstoul wcstoull wcstoumax wcsxfrm wcsxfrm_l wctob wctomb
    wctrans wctrans_l wctype wctype_l wmemchr wmemcmp wmemcpy wmemmove wmemset wprintf write wscanf y0 y0f y0l y1
    y1f y1l yn ynf ynl
    """.split()
)

#: Headers of the C library and of POSIX, without `.h`, that others of the same name would take the place of.
HEADERS = frozenset(
    """
    assert complex ctype cpuid dlfcn errno fcntl fenv float immintrin inttypes iso646 limits locale malloc math memory
    omp pthread sched search setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn
    string strings syscall tgmath threads time uchar unistd wchar wctype
    """.split()
)

#: What emitted code calls, so that no variable may hide it.
_CALLED = frozenset("abs main memcpy memset".split())
_TAKEN = ("_", "morello_", "MORELLO_", "pthread_", "PTHREAD_", "SYS_")


def fault(name: str) -> tuple[str, str] | None:
    """Return why C code cannot define a function of that name, and what to do about it; None if it can."""
    if not (name.isascii() and name.isidentifier()):
        return "is no name in C", "use ASCII letters, digits and _"
    if len(name) > LONGEST:
        return f"is longer than {LONGEST} letters", "shorten it"
    remedy = f"rename it, for instance to my_{name.lstrip('_').removesuffix('_t')}"
    if name in KEYWORDS:
        return "is a word of C or C++", remedy
    if name in MACROS:
        return "is a macro of C compilers or headers", remedy
    if name in LIBRARY:
        return "is in the C library", remedy
    if name.endswith("_t"):
        return "ends like a type of the C library", remedy
    if taken := next((prefix for prefix in _TAKEN if name.startswith(prefix)), None):
        return f"starts with {taken}, as names of C compilers and of Morello do", remedy
    return None


def check_name(name: str) -> None:
    """Raise EmitError if C code cannot define a function of that name."""
    if refused := fault(name):
        raise EmitError(f"{name[:LONGEST]!r} cannot name a C function: it {refused[0]}", refused[1])


def spelled(name: str) -> str:
    """Return a name of the Spec language in letters of C, and without the beginnings that are taken."""
    text = "".join(one if one.isascii() else f"u{ord(one):04x}" for one in name)
    return f"my_{text.lstrip('_')}" if text.startswith(_TAKEN) else text


def hides(name: str) -> bool:
    """Tell if a variable of that name is refused by C, or hides what emitted code uses."""
    return name in KEYWORDS or name in MACROS or name in _CALLED or name.endswith("_t")
