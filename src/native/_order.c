/* Compiled orders: the Feistel network and the sorted hashes of tokenloom.random.permute, forward and
 * back. The NumPy versions are there, too.
 *
 * Each round of an index needs the round before it. So LANES indices take each round together,
 * which keeps the processor busy. There is a round in plain C, and one for processors with AVX2.
 */
#include "_native.h"

#define ROUNDS 8
#define LANES 64 /* a multiple of 4 */
#define FIRST 0xBF58476D1CE4E5B9 /* the factors of the hash */
#define SECOND 0x94D049BB133111EB

typedef uint64_t Words[LANES] __attribute__((aligned(32)));

/* A request: x [count] below n, each permuted with column `which` of keys [ROUNDS, columns]. */
typedef struct {
    Py_buffer held[4];
    const char *x, *which; /* if `which` is NULL, all use the first column */
    const uint64_t *keys;
    char *out;
    Index count;
    uint64_t columns, n;
    uint64_t sizes[2];   /* a and b: x is (left, right) = (x / b, x % b), left below a */
    uint64_t reciprocal; /* of b, times 2^64, rounded down */
} Network;

/* -- the network ----------------------------------------------------------------------------- */

/* x / b without a division. x is below 2^63 + 2^32, so the reciprocal gives at most 1 too few. */
static inline uint64_t
divide(const Network *net, uint64_t x)
{
#ifdef __SIZEOF_INT128__
    uint64_t quotient = (uint64_t)((unsigned __int128)x * net->reciprocal >> 64);
    return quotient + (x - quotient * net->sizes[1] >= net->sizes[1]);
#else
    return x / net->sizes[1];
#endif
}

/* Whether any x is n or more. The top bits tell: n is at most 2^63, so an x with its top bit set is
 * too large, and so is any other x for which n - 1 - x wraps below 0.
 */
static inline int
beyond(const Network *net, const uint64_t *x, int lanes)
{
    uint64_t bits = 0;
    for (int i = 0; i < lanes; i++)
        bits |= x[i] | (net->n - 1 - x[i]);
    return (int)(bits >> 63);
}

/* half ± a keyed hash of the other half, modulo size; everything but the key is below 2^32. */
static void
mix_plain(uint64_t *restrict half, const uint64_t *restrict other, const uint64_t *restrict key,
          uint64_t size, int lanes, int backwards)
{
    for (int i = 0; i < lanes; i++) {
        uint64_t hash = (other[i] ^ key[i]) * FIRST;
        hash = (hash ^ hash >> 32) * SECOND;
        hash = (hash >> 32) * size >> 32;
        uint64_t sum = backwards ? half[i] - hash : half[i] + hash - size;
        half[i] = sum + (size & -(sum >> 63)); /* the top bit is set if sum is below 0 */
    }
}

#ifdef __x86_64__
#include <immintrin.h>

typedef uint64_t Wide __attribute__((vector_size(32)));
typedef Wide Four __attribute__((may_alias)); /* to load and store words in memory */

/* The same for four lanes at once. AVX2 only multiplies the low 32 bits of each lane, so x y modulo
 * 2^64 is written out as low low + ((low high + high low) << 32).
 */
#define TIMES(x, y) ((Wide)_mm256_mul_epu32((__m256i)(x), (__m256i)(y)))

__attribute__((target("avx2"))) static void
mix_wide(uint64_t *restrict half, const uint64_t *restrict other, const uint64_t *restrict key,
         uint64_t size, int lanes, int backwards)
{
    const Wide zero = {0}, first = zero + FIRST, second = zero + SECOND, sizes = zero + size;
    const Wide first_top = first >> 32, second_top = second >> 32;
    for (int i = 0; i < lanes; i += 4) {
        Wide here = *(Four *)(half + i);
        Wide x = *(const Four *)(other + i) ^ *(const Four *)(key + i);
        x = TIMES(x, first) + ((TIMES(x, first_top) + TIMES(x >> 32, first)) << 32);
        Wide top = x >> 32, low = x ^ top;
        Wide hash = (TIMES(low, second) >> 32) + TIMES(low, second_top) + TIMES(top, second);
        hash = TIMES(hash, sizes) >> 32;
        Wide sum = backwards ? here - hash : here + hash - sizes;
        *(Four *)(half + i) = sum + (sizes & -(sum >> 63));
    }
}

#define MIX (__builtin_cpu_supports("avx2") ? mix_wide : mix_plain)
#else
#define MIX mix_plain
#endif

typedef void Mix(uint64_t *restrict, const uint64_t *restrict, const uint64_t *restrict, uint64_t,
                 int, int);

/* One pass over some lanes: a permutation of range(a b). */
static void
pass(const Network *net, Mix *mix, uint64_t *x, const Words *keys, int lanes, int backwards)
{
    Words halves[2];
    for (int i = 0; i < lanes; i++) {
        halves[0][i] = divide(net, x[i]);
        halves[1][i] = x[i] - halves[0][i] * net->sizes[1];
    }
    for (int number = 0; number < ROUNDS; number++) {
        int at = backwards ? ROUNDS - 1 - number : number, side = at % 2;
        mix(halves[side], halves[!side], keys[at], net->sizes[side], lanes, backwards);
    }
    for (int i = 0; i < lanes; i++)
        x[i] = halves[0][i] * net->sizes[1] + halves[1][i];
}

/* The keys of some lanes in every round; -1 if a column does not exist. */
static int
take_keys(const Network *net, const uint64_t *which, Words *keys, int lanes)
{
    for (int i = 0; i < lanes; i++)
        if (which[i] >= net->columns)
            return -1;
    for (int number = 0; number < ROUNDS; number++) {
        const uint64_t *row = net->keys + (uint64_t)number * net->columns;
        for (int i = 0; i < lanes; i++)
            keys[number][i] = row[which[i]];
    }
    return 0;
}

/* Permute lanes that came out at n or more again, each on its own (cycle walking). */
static void
go_on(const Network *net, uint64_t *x, const Words *keys, int lanes, int backwards)
{
    for (int i = 0; i < lanes; i++)
        while (x[i] >= net->n) {
            Words lane[ROUNDS];
            for (int number = 0; number < ROUNDS; number++)
                lane[number][0] = keys[number][i];
            pass(net, mix_plain, x + i, lane, 1, backwards);
        }
}

/* Permute all x. Returns early, with the place, if an x or a column is out of range. */
static Index
walk(const Network *net, int backwards)
{
    Mix *mix = MIX;
    Words x = {0}, which = {0}, keys[ROUNDS];
    Index at = 0;
    if (!net->which && net->count && take_keys(net, which, keys, LANES))
        return 0;
    for (; at < net->count; at += LANES) {
        Index left = net->count - at, some = left < LANES ? left : LANES;
        int lanes = (int)(some + 3) / 4 * 4; /* up to three spare lanes hold old values */
        memcpy(x, net->x + 8 * at, (size_t)some * 8); /* a copy: what was checked cannot change */
        if (beyond(net, x, lanes))
            return at;
        if (net->which) {
            memcpy(which, net->which + 8 * at, (size_t)some * 8);
            if (take_keys(net, which, keys, lanes))
                return at;
        }
        pass(net, mix, x, keys, lanes, backwards);
        if (beyond(net, x, lanes))
            go_on(net, x, keys, lanes, backwards);
        memcpy(net->out + 8 * at, x, (size_t)some * 8);
    }
    return net->count;
}

/* -- arguments ------------------------------------------------------------------------------- */

enum { X, WHICH, KEYS, OUT };

static int
get_size(PyObject *value, uint64_t *out, const char *name)
{
    if (!PyLong_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s: found %R, allowed: an integer", name, value);
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(value);
    if (!PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_ValueError, "%s: negative, or beyond 64 bits", name);
    return -1;
}

/* a is at most n, so a b is below 2 n and cycle walks are short. */
static int
take_sizes(Network *net, PyObject *n, PyObject *side)
{
    if (get_size(n, &net->n, "n") || get_size(side, &net->sizes[0], "side"))
        return -1;
    uint64_t a = net->sizes[0], b = a ? net->n / a + (net->n % a != 0) : 0;
    if (net->n > 1ULL << 63 || !a || a > net->n || a > UINT32_MAX || b > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError,
                        "n: allowed: 1 to 2^63, side: 1 to n, both it and n / side below 2^32");
        return -1;
    }
    net->sizes[1] = b;
    net->reciprocal = UINT64_MAX / b;
    return 0;
}

static int
take_arrays(Network *net, PyObject *const *arrays)
{
    static const Wanted wanted[] = {
        {"x", UINT64, 0, 0}, {"which", WORD64, 0, 1}, {"keys", UINT64, 0, 0}, {"out", UINT64, 1, 0}};
    Py_buffer *held = net->held;
    if (get_arrays(arrays, held, wanted, 4))
        return -1;
    net->x = held[X].buf;
    net->which = held[WHICH].buf;
    net->keys = held[KEYS].buf;
    net->out = held[OUT].buf;
    net->count = held[X].len / 8;
    net->columns = (uint64_t)held[KEYS].len / (8 * ROUNDS);
    if (held[OUT].len == held[X].len && held[KEYS].len % (8 * ROUNDS) == 0 &&
        (!held[WHICH].obj || held[WHICH].len == held[X].len))
        return 0;
    PyErr_SetString(PyExc_ValueError, "x, which and out: not of one length, or keys not of 8 rows");
    release(held, 4);
    return -1;
}

PyObject *
feistel(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    Network net;
    Index done;
    if (wrong_count("feistel", nargs, 7) || take_sizes(&net, args[3], args[4]))
        return NULL;
    int backwards = PyObject_IsTrue(args[5]);
    if (backwards < 0) {
        name_it("backwards");
        return NULL;
    }
    PyObject *arrays[] = {args[0], args[1], args[2], args[6]};
    if (take_arrays(&net, arrays))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    done = walk(&net, backwards);
    Py_END_ALLOW_THREADS
    release(net.held, 4);
    if (done == net.count)
        Py_RETURN_NONE;
    PyErr_Format(PyExc_ValueError, "x or which: out of range, at %zd or up to %d places on", done,
                 LANES - 1);
    return NULL;
}

/* -- single places of sorted hashes ---------------------------------------------------------- */

#define SMALL 4096 /* most indices of a permutation; a power of 2 */
#define GOLDEN 0x9E3779B97F4A7C15
#define WHOLE 18446744073709551616.0 /* 2^64 */

/* The words of range(n) under a key: a hash whose low bits are the index, so all differ. */
static void
hash_all(uint64_t *words, uint64_t key, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t word = key + (i + 1) * GOLDEN;
        word = (word ^ word >> 30) * FIRST;
        word = (word ^ word >> 27) * SECOND;
        word ^= word >> 31;
        words[i] = (word & ~(uint64_t)(SMALL - 1)) | i;
    }
}

/* Number of words below a limit. */
static uint64_t
count_below(const uint64_t *words, uint64_t n, uint64_t limit)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += words[i] < limit;
    return count;
}

/* The word of rank x among n words, which it moves around. */
static uint64_t
pick(uint64_t *words, uint64_t n, uint64_t x)
{
    while (n > 1) {
        uint64_t pivot = words[n / 2], below = 0;
        for (uint64_t i = 0; i < n; i++) { /* the smaller words to the front, without a branch */
            uint64_t word = words[i];
            words[i] = words[below];
            words[below] = word;
            below += word < pivot;
        }
        if (x < below) {
            n = below;
        } else if (below) {
            words += below;
            n -= below;
            x -= below;
        } else { /* the pivot is the smallest */
            for (uint64_t i = 0; i < n; i++)
                if (words[i] == pivot) {
                    words[i] = words[0];
                    words[0] = pivot;
                }
            if (!x)
                return pivot;
            words++, n--, x--;
        }
    }
    return words[0];
}

/* The word of rank x. Hashes are spread evenly, so it lies close to x / n of 2^64: only words around
 * there are looked at more closely, or all of them if it is not among those.
 */
static uint64_t
word_of_rank(const uint64_t *words, uint64_t *near, uint64_t n, uint64_t x)
{
    double middle = ((double)x + 0.5) / (double)n, apart = 4.0 / (double)n;
    for (uint64_t root = 1; root * root < n; root++)
        apart += 1.5 / (double)n; /* three times how far it is off on average, at most */
    double least = (middle - apart) * WHOLE, most = (middle + apart) * WHOLE;
    uint64_t low = least <= 0 ? 0 : (uint64_t)least;
    uint64_t high = most >= WHOLE ? UINT64_MAX : (uint64_t)most;
    uint64_t below = 0, some = 0;
    for (uint64_t i = 0; i < n; i++) { /* `near` has room for one word more than there are */
        near[some] = words[i];
        below += words[i] < low;
        some += words[i] >= low && words[i] <= high;
    }
    if (x >= below && x - below < some)
        return pick(near, some, x - below);
    memcpy(near, words, (size_t)n * 8);
    return pick(near, n, x);
}

static inline int
fits_size(int64_t size, uint64_t x)
{
    return size >= 1 && size <= SMALL && x < (uint64_t)size;
}

/* out[i] = where index x[i] goes under keys[i], or what goes there; -1 or the place of a wrong x,
 * with nothing written unless it became wrong meanwhile. */
static Index
rank_all(const uint64_t *keys, const int64_t *sizes, const uint64_t *x, uint64_t *out, Index count,
         int backwards)
{
    uint64_t words[SMALL], near[SMALL + 1];
    for (Index at = 0; at < count; at++)
        if (!fits_size(READ(int64_t, sizes + at), READ(uint64_t, x + at)))
            return at;
    for (Index at = 0; at < count; at++) {
        int64_t size = READ(int64_t, sizes + at);
        uint64_t place = READ(uint64_t, x + at), n = (uint64_t)size;
        if (!fits_size(size, place))
            return at;
        hash_all(words, READ(uint64_t, keys + at), n);
        out[at] = backwards ? count_below(words, n, words[place])
                            : word_of_rank(words, near, n, place) & (SMALL - 1);
    }
    return -1;
}

PyObject *
hash_rank(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    static const Wanted wanted[] = {
        {"keys", UINT64, 0, 0}, {"sizes", INT64, 0, 0}, {"x", UINT64, 0, 0}, {"out", UINT64, 1, 0}};
    Py_buffer held[4];
    if (wrong_count("hash_rank", nargs, 5))
        return NULL;
    int backwards = PyObject_IsTrue(args[3]);
    if (backwards < 0) {
        name_it("backwards");
        return NULL;
    }
    PyObject *arrays[] = {args[0], args[1], args[2], args[4]};
    if (get_arrays(arrays, held, wanted, 4))
        return NULL;
    Index length = held[0].len, wrong = -1;
    int same = held[1].len == length && held[2].len == length && held[3].len == length;
    if (same) {
        Py_BEGIN_ALLOW_THREADS
        wrong = rank_all(held[0].buf, held[1].buf, held[2].buf, held[3].buf, length / 8, backwards);
        Py_END_ALLOW_THREADS
    }
    release(held, 4);
    if (same && wrong < 0)
        Py_RETURN_NONE;
    if (same)
        PyErr_Format(PyExc_ValueError, "sizes or x: out of range, at %zd; allowed: sizes of 1 to %d, "
                     "x below its size", wrong, SMALL);
    else
        PyErr_SetString(PyExc_ValueError, "keys, sizes, x and out: not of one length");
    return NULL;
}
