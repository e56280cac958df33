/* The compiled merge of sources by virtual time: `Merger`, the loops of tokenloom.mixture.merge.
 *
 * When an item happens is one expression of floats (`when`), evaluated in the order in which NumPy
 * evaluates it, without fused operations, so the bits are the same. How many items happen before a
 * moment, and what the items from there on are, follows from comparisons alone. So the result does
 * not depend on how it is searched for.
 *
 * A loser tree merges: every source waits with its next item, the earliest one is taken, and one
 * comparison per level finds the next.
 */
#include "_native.h"

#include <float.h>
#include <math.h>

#define GOLDEN 0x9E3779B97F4A7C15 /* see tokenloom.random.keys */
#define FIRST 0xBF58476D1CE4E5B9
#define SECOND 0x94D049BB133111EB
#define INTEGER 1 /* the first word of an integer in a path */

#define LARGEST ((int64_t)1 << 61) /* cost consumed: twice as much still fits into 64 bits */
#define DEAREST ((int64_t)1 << 53) /* cost of an item */
#define MOST_ITEMS ((int64_t)1 << 62)
#define MOST_SOURCES ((Index)1 << 24)
#define LATEST 1e300 /* no moment comes later */
#define FEW 64       /* items, and two of each source, are merged rather than searched for */

/* A source. Nobody else has it, so it stays as it was checked. */
typedef struct {
    double weight, base;
    int64_t ref, cost; /* cost 0: its items have costs of their own, and their times are given */
    int64_t first, limit; /* items that count: [first, limit) */
    uint64_t tie;
} Clock;

typedef struct {
    PyObject_HEAD
    Clock *clocks;
    Index count;
    int midpoint, listed, equal; /* equal: no source has cost 0 */
} Merger;

/* -- times ----------------------------------------------------------------------------------- */

static inline double
when(const Merger *self, const Clock *clock, int64_t item)
{
    int64_t begin = item * clock->cost - clock->ref; /* both are at most 2^61 */
    if (self->midpoint)
        return clock->base + (double)(2 * begin + clock->cost) / (2 * clock->weight);
    return clock->base + (double)begin / clock->weight;
}

static uint64_t
mix(uint64_t word)
{
    word = (word ^ word >> 30) * FIRST;
    word = (word ^ word >> 27) * SECOND;
    return word ^ word >> 31;
}

/* The hash of a source and a moment, which orders items of one moment. */
static inline uint64_t
tie_of(const Merger *self, const Clock *clock, double moment)
{
    uint64_t bits;
    if (self->listed)
        return 0;
    memcpy(&bits, &moment, 8);
    return mix((clock->tie ^ bits) + GOLDEN);
}

/* The items of a source that happen before a moment. The division only guesses. */
static int64_t
count_before(const Merger *self, const Clock *clock, double moment)
{
    double cost = (double)clock->cost;
    double about = ((moment - clock->base) * clock->weight + (double)clock->ref) / cost;
    int64_t guess = clock->limit;
    int steps = 0;
    if (!(about > 0))
        guess = 0;
    else if (about < (double)clock->limit)
        guess = (int64_t)about + ((double)(int64_t)about < about);
    for (; steps < 8 && guess > 0 && when(self, clock, guess - 1) >= moment; steps++)
        guess--;
    for (; steps < 8 && guess < clock->limit && when(self, clock, guess) < moment; steps++)
        guess++;
    if (steps == 8) { /* floats are coarse here */
        int64_t low = 0, high = clock->limit;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (when(self, clock, middle) < moment)
                low = middle + 1;
            else
                high = middle;
        }
        guess = low;
    }
    return guess > clock->first ? guess : clock->first;
}

/* The same of all sources, at most MOST_ITEMS; `counts` may be NULL. */
static int64_t
count_all(const Merger *self, double moment, int64_t *counts)
{
    int64_t sum = 0;
    for (Index i = 0; i < self->count; i++) {
        int64_t here = count_before(self, &self->clocks[i], moment);
        sum = here > MOST_ITEMS - sum ? MOST_ITEMS : sum + here;
        if (counts)
            counts[i] = here;
    }
    return sum;
}

/* -- the tree -------------------------------------------------------------------------------- */

/* The next item of a source. One that has none left comes last. */
typedef struct {
    double time;
    uint64_t tie;
    int64_t item, left;
    const double *times; /* of a source with cost 0, from the item after the next one on */
} Next;

typedef struct {
    const Merger *merger;
    Next *next;
    int32_t *losers; /* [sources]: the loser at each node, the winner at 0 */
} Tree;

static inline int
before(const Tree *tree, int32_t one, int32_t other)
{
    const Next *a = &tree->next[one], *b = &tree->next[other];
    if (a->time != b->time)
        return a->time < b->time;
    return a->tie != b->tie ? a->tie < b->tie : one < other;
}

/* Look at the item that a source has now. */
static inline void
look(const Tree *tree, Index source)
{
    Next *next = &tree->next[source];
    const Clock *clock = &tree->merger->clocks[source];
    if (next->left <= 0) {
        next->time = INFINITY;
        next->tie = UINT64_MAX;
        return;
    }
    next->time = clock->cost ? when(tree->merger, clock, next->item) : READ(double, next->times++);
    next->tie = tie_of(tree->merger, clock, next->time);
}

/* Have every source wait with its next item; `winners` has room for 2 * sources. */
static void
build(const Tree *tree, int32_t *winners)
{
    Index count = tree->merger->count;
    for (Index i = 0; i < count; i++) {
        look(tree, i);
        winners[count + i] = (int32_t)i;
    }
    for (Index node = count - 1; node > 0; node--) {
        int32_t left = winners[2 * node], right = winners[2 * node + 1];
        int wins = before(tree, left, right);
        winners[node] = wins ? left : right;
        tree->losers[node] = wins ? right : left;
    }
    tree->losers[0] = count > 1 ? winners[1] : 0;
}

/* Take up to n items in order; answers how many there were. */
static Index
take_items(const Tree *tree, Index n, int64_t *source, int64_t *item)
{
    Index count = tree->merger->count, done = 0;
    int32_t winner = tree->losers[0];
    for (; done < n && tree->next[winner].left > 0; done++) {
        Next *next = &tree->next[winner];
        if (source) {
            source[done] = winner;
            item[done] = next->item;
        }
        next->item++;
        next->left--;
        look(tree, winner);
        for (Index node = (winner + count) / 2; node > 0; node /= 2) {
            int32_t other = tree->losers[node];
            if (before(tree, other, winner)) {
                tree->losers[node] = winner;
                winner = other;
            }
        }
    }
    return done;
}

/* Memory of a tree; -1 with an exception if there is none. */
static int
new_tree(const Merger *self, Tree *tree, int32_t **winners)
{
    size_t count = (size_t)self->count;
    tree->merger = self;
    tree->next = PyMem_Calloc(count, sizeof(Next));
    tree->losers = PyMem_Calloc(3 * count, sizeof(int32_t));
    *winners = tree->losers ? tree->losers + count : NULL;
    if (tree->next && tree->losers)
        return 0;
    PyMem_Free(tree->next);
    PyMem_Free(tree->losers);
    PyErr_NoMemory();
    return -1;
}

static void
free_tree(Tree *tree)
{
    PyMem_Free(tree->next);
    PyMem_Free(tree->losers);
}

/* -- methods --------------------------------------------------------------------------------- */

PyDoc_STRVAR(counts_doc, "counts(moment, out)\n--\n\n"
                         "The items of each source with equal costs that happen before a moment.");

static PyObject *
merger_counts(Merger *self, PyObject *const *args, Index nargs)
{
    static const Wanted wanted = {"out", INT64, 1, 0};
    Py_buffer out;
    if (wrong_count("counts", nargs, 2))
        return NULL;
    double moment = PyFloat_AsDouble(args[0]);
    if (moment == -1 && PyErr_Occurred()) {
        name_it("moment");
        return NULL;
    }
    if (get_array(args[1], &out, &wanted))
        return NULL;
    if (out.len / 8 != self->count) {
        PyErr_Format(PyExc_ValueError, "out: %zd items, wanted %zd", out.len / 8, self->count);
        PyBuffer_Release(&out);
        return NULL;
    }
    int64_t *counts = out.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Index i = 0; i < self->count; i++)
        if (self->clocks[i].cost)
            counts[i] = count_before(self, &self->clocks[i], moment);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* A moment before which at most `index` items happen, and almost that many if floats allow. */
static double
moment_before(const Merger *self, double low, int64_t below, int64_t index)
{
    double rate = 0, high = INFINITY;
    int64_t above = MOST_ITEMS, few = FEW + 2 * self->count;
    for (Index i = 0; i < self->count; i++)
        if (self->clocks[i].limit > self->clocks[i].first)
            rate += self->clocks[i].weight / (double)self->clocks[i].cost;
    for (int round = 0; index - below > few && low < LATEST; round++) {
        double step = (double)(index - below - few / 2), middle;
        if (high == INFINITY) { /* further with every round: sources may drop out */
            middle = low + step / rate * (round < 2 ? 1 : (double)((int64_t)1 << (round % 50)));
            if (!(middle < LATEST))
                middle = LATEST;
        } else {
            middle = low + (high - low) * (step / (double)(above - below));
        }
        if (high != INFINITY && (round % 4 == 3 || !(low < middle && middle < high)))
            middle = low + (high - low) / 2;
        if (!(low < middle && middle < high))
            break; /* no float is between them */
        int64_t count = count_all(self, middle, NULL);
        if (count <= index) {
            low = middle;
            below = count;
        } else {
            high = middle;
            above = count;
        }
    }
    return low;
}

/* Where every source is before an index: some items in one step, the rest one by one. */
static void
cut_at(const Merger *self, const Tree *tree, int32_t *winners, int64_t index)
{
    double begin = INFINITY;
    int64_t below = 0;
    for (Index i = 0; i < self->count; i++) {
        const Clock *clock = &self->clocks[i];
        below = clock->first > MOST_ITEMS - below ? MOST_ITEMS : below + clock->first;
        if (clock->limit > clock->first) {
            double time = when(self, clock, clock->first);
            begin = time < begin ? time : begin;
        }
    }
    double moment = begin < LATEST ? moment_before(self, begin, below, index) : begin;
    int64_t sum = 0;
    for (Index i = 0; i < self->count; i++) {
        const Clock *clock = &self->clocks[i];
        int64_t item = moment > begin ? count_before(self, clock, moment) : clock->first;
        sum = item > MOST_ITEMS - sum ? MOST_ITEMS : sum + item;
        tree->next[i] = (Next){0, 0, item, clock->limit - item, NULL};
    }
    build(tree, winners);
    if (index > sum)
        take_items(tree, (Index)(index - sum), NULL, NULL);
}

PyDoc_STRVAR(cut_doc, "cut(index, out)\n--\n\n"
                      "The items of every source before an index; all must have equal costs.");

static PyObject *
merger_cut(Merger *self, PyObject *const *args, Index nargs)
{
    static const Wanted wanted = {"out", INT64, 1, 0};
    Py_buffer out;
    Index index;
    Tree tree;
    int32_t *winners;
    if (wrong_count("cut", nargs, 2) || get_int(args[0], &index, 0, DEAREST, "index"))
        return NULL;
    if (!self->equal) {
        PyErr_SetString(PyExc_ValueError, "cut: some sources have items with costs of their own");
        return NULL;
    }
    if (get_array(args[1], &out, &wanted))
        return NULL;
    if (out.len / 8 != self->count) {
        PyErr_Format(PyExc_ValueError, "out: %zd items, wanted %zd", out.len / 8, self->count);
    } else if (!new_tree(self, &tree, &winners)) {
        int64_t *counts = out.buf;
        Py_BEGIN_ALLOW_THREADS
        cut_at(self, &tree, winners, index);
        for (Index i = 0; i < self->count; i++)
            counts[i] = tree.next[i].item;
        Py_END_ALLOW_THREADS
        free_tree(&tree);
    }
    PyBuffer_Release(&out);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

enum { COUNTS, EDGES, TIMES, SOURCE, ITEM, TAKEN };

/* Put the sources at `counts`; -1 with an exception if a count or an edge is out of range. */
static int
place(const Merger *self, const Tree *tree, const Py_buffer *held)
{
    const int64_t *counts = held[COUNTS].buf, *edges = held[EDGES].buf;
    int64_t total = held[TIMES].len / 8;
    for (Index i = 0; i < self->count; i++) {
        const Clock *clock = &self->clocks[i];
        int64_t item = READ(int64_t, counts + i);
        const double *times = NULL;
        if (item < 0 || item > clock->limit) {
            PyErr_Format(PyExc_IndexError, "counts: source %zd has no such item", i);
            return -1;
        }
        int64_t left = clock->limit - item;
        if (!clock->cost) {
            int64_t low = READ(int64_t, edges + i), high = READ(int64_t, edges + i + 1);
            if (low < 0 || high < low || high > total || high - low > left) {
                PyErr_Format(PyExc_IndexError, "edges: source %zd has no such times", i);
                return -1;
            }
            times = (const double *)held[TIMES].buf + low;
            left = high - low;
        }
        tree->next[i] = (Next){0, 0, item, left, times};
    }
    return 0;
}

PyDoc_STRVAR(take_doc,
    "take(counts, edges, times, source, item)\n--\n\n"
    "Fill source and item with what comes after `counts`, which are moved on; answers how many.\n\n"
    "times[edges[i]:edges[i + 1]] are the next items of a source i whose costs differ; edges and\n"
    "times are None if there is none.");

static PyObject *
merger_take(Merger *self, PyObject *const *args, Index nargs)
{
    static const Wanted wanted[] = {
        {"counts", INT64, 1, 0}, {"edges", INT64, 0, 1}, {"times", FLOAT64, 0, 1},
        {"source", INT64, 1, 0}, {"item", INT64, 1, 0}};
    Py_buffer held[TAKEN];
    Tree tree;
    int32_t *winners;
    Index done = -1;
    if (wrong_count("take", nargs, TAKEN) || get_arrays(args, held, wanted, TAKEN))
        return NULL;
    if (held[COUNTS].len / 8 != self->count || held[SOURCE].len != held[ITEM].len ||
        (held[EDGES].obj && held[EDGES].len / 8 != self->count + 1)) {
        PyErr_SetString(PyExc_ValueError, "counts, edges, source or item: not of the right length");
    } else if (!self->equal && (!held[EDGES].obj || !held[TIMES].obj)) {
        PyErr_SetString(PyExc_ValueError,
                        "edges, times: found None, and some items have costs of their own");
    } else if (!new_tree(self, &tree, &winners)) {
        if (!place(self, &tree, held)) {
            int64_t *counts = held[COUNTS].buf;
            Py_BEGIN_ALLOW_THREADS
            build(&tree, winners);
            done = take_items(&tree, held[SOURCE].len / 8, held[SOURCE].buf, held[ITEM].buf);
            for (Index i = 0; i < self->count; i++)
                counts[i] = tree.next[i].item;
            Py_END_ALLOW_THREADS
        }
        free_tree(&tree);
    }
    release(held, TAKEN);
    return done < 0 ? NULL : PyLong_FromSsize_t(done);
}

/* -- the object ------------------------------------------------------------------------------ */

enum { WEIGHT, BASE, REF, COST, BEGIN, END, TIES, GIVEN };

static int
take_clocks(Merger *self, const Py_buffer *held)
{
    self->equal = 1;
    for (Index i = 0; i < self->count; i++) {
        Clock clock = {
            READ(double, (const double *)held[WEIGHT].buf + i),
            READ(double, (const double *)held[BASE].buf + i),
            READ(int64_t, (const int64_t *)held[REF].buf + i),
            READ(int64_t, (const int64_t *)held[COST].buf + i),
            READ(int64_t, (const int64_t *)held[BEGIN].buf + i),
            READ(int64_t, (const int64_t *)held[END].buf + i),
            READ(uint64_t, (const uint64_t *)held[TIES].buf + i),
        };
        int64_t most = clock.cost > 0 ? LARGEST / clock.cost : MOST_ITEMS;
        const char *wrong = !(clock.weight > 0 && clock.weight < LATEST)          ? "weight"
                            : !(clock.base > -LATEST && clock.base < LATEST)      ? "base"
                            : clock.ref < 0 || clock.ref > LARGEST                ? "ref"
                            : clock.cost < 0 || clock.cost > DEAREST              ? "cost"
                            : clock.limit < 0 || clock.limit > MOST_ITEMS         ? "end"
                            : clock.first < 0 || clock.first > clock.limit ||
                                    clock.first > most                            ? "first"
                                                                                  : NULL;
        if (wrong) {
            PyErr_Format(PyExc_ValueError, "%s: of source %zd, out of range", wrong, i);
            return -1;
        }
        clock.limit = clock.limit < most ? clock.limit : most;
        clock.tie = mix((clock.tie ^ INTEGER) + GOLDEN);
        self->equal &= clock.cost > 0;
        self->clocks[i] = clock;
    }
    return 0;
}

static int
take_given(Merger *self, PyObject *const *arrays)
{
    static const Wanted wanted[] = {
        {"weight", FLOAT64, 0, 0}, {"base", FLOAT64, 0, 0}, {"ref", INT64, 0, 0},
        {"cost", INT64, 0, 0},     {"first", INT64, 0, 0},  {"end", INT64, 0, 0},
        {"ties", UINT64, 0, 0}};
    Py_buffer held[GIVEN];
    int failed = -1;
    if (get_arrays(arrays, held, wanted, GIVEN))
        return -1;
    self->count = held[WEIGHT].len / 8;
    int same = self->count > 0 && self->count <= MOST_SOURCES;
    for (int i = BASE; i < GIVEN; i++)
        same &= held[i].len == held[WEIGHT].len;
    if (!same)
        PyErr_SetString(PyExc_ValueError,
                        "weight, base, ref, cost, first, end, ties: not of one length, or empty");
    else if (!(self->clocks = PyMem_Calloc((size_t)self->count, sizeof(Clock))))
        PyErr_NoMemory();
    else
        failed = take_clocks(self, held);
    release(held, GIVEN);
    return failed;
}

static PyObject *
merger_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given[GIVEN];
    int midpoint, listed;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Merger takes no named arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOOOOOpp", &given[WEIGHT], &given[BASE], &given[REF],
                          &given[COST], &given[BEGIN], &given[END], &given[TIES], &midpoint,
                          &listed))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Merger *self = (Merger *)alloc(type, 0);
    if (!self)
        return NULL;
    self->midpoint = midpoint;
    self->listed = listed;
    if (take_given(self, given)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
merger_dealloc(Merger *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->clocks);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef merger_methods[] = {
    {"counts", (PyCFunction)(void (*)(void))merger_counts, METH_FASTCALL, counts_doc},
    {"cut", (PyCFunction)(void (*)(void))merger_cut, METH_FASTCALL, cut_doc},
    {"take", (PyCFunction)(void (*)(void))merger_take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot merger_slots[] = {
    {Py_tp_doc, "Merger(weight, base, ref, cost, first, end, ties, midpoint, listed)\n--\n\n"
                "See tokenloom.mixture.merge."},
    {Py_tp_new, merger_new},
    {Py_tp_dealloc, merger_dealloc},
    {Py_tp_methods, merger_methods},
    {0, NULL},
};

static PyType_Spec merger_spec = {
    "tokenloom._native.Merger", sizeof(Merger), 0, Py_TPFLAGS_DEFAULT, merger_slots};

int
add_merger(PyObject *module)
{
    if (FLT_EVAL_METHOD != 0)
        return 0; /* floats have other bits here than in NumPy, which is used instead */
    PyObject *type = PyType_FromSpec(&merger_spec);
    int failed = !type || PyModule_AddObjectRef(module, "Merger", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
