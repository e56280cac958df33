/* The guard: a page that is missing from a map is an error, and not the end of the process.
 *
 * If a file is cut short under a map, touching a page that is gone raises SIGBUS. So a copy from maps
 * runs inside `guarded`: a handler, installed once, looks whether the fault is in a map that this
 * very thread is copying from, and jumps back; everything else goes on to whoever had the signal
 * before, as if we were not there. Whoever replaced our handler meanwhile, or blocked the signal, is
 * noticed before a group is read (`guard`), and then `pread` does the work.
 */
#include "_payload.h"

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

static struct sigaction before; /* what was there when ours was installed */
static __thread sigjmp_buf back;
static __thread const Map *volatile watched; /* the maps that this thread copies from */
static __thread volatile Index watched_count;
static __thread const char *volatile fault;

/* Do what would have been done without us. */
static void
pass_on(int number, siginfo_t *info, void *context)
{
    int sent = info->si_code <= 0; /* by a process; nothing faults again when we return */
    if (before.sa_handler == SIG_IGN && sent)
        return;
    if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        signal(number, SIG_DFL); /* the instruction faults again, and then nobody asks us */
        if (sent)
            raise(number);
        return;
    }
    if (before.sa_flags & (int)SA_RESETHAND)
        signal(number, SIG_DFL);
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else
        before.sa_handler(number);
}

static void
on_bus_error(int number, siginfo_t *info, void *context)
{
    const char *at = info->si_addr; /* meaningless for a signal that was sent */
    for (Index i = 0; info->si_code > 0 && i < watched_count; i++)
        if (at >= watched[i].begin && at < watched[i].end) {
            watched_count = 0;
            fault = at;
            siglongjmp(back, 1);
        }
    pass_on(number, info, context);
}

int
guarded(const Map *maps, Index count, void (*work)(void *), void *given, const char **where)
{
    if (!count) {
        work(given);
        return 0;
    }
    if (sigsetjmp(back, 0)) { /* the handler blocks nothing, so there is no mask to restore */
        *where = (const char *)fault;
        return -1;
    }
    watched = maps;
    watched_count = count;
    atomic_signal_fence(memory_order_seq_cst); /* nothing of the work is moved out of here */
    work(given);
    atomic_signal_fence(memory_order_seq_cst);
    watched_count = 0;
    return 0;
}

PyObject *
guard(PyObject *Py_UNUSED(module), PyObject *const *Py_UNUSED(args), Index nargs)
{
    static int installed;
    struct sigaction now, ours;
    sigset_t blocked;
    if (wrong_count("guard", nargs, 0))
        return NULL;
    sigemptyset(&blocked); /* a fault that is blocked ends the process, whoever has the signal */
    if (sigaction(SIGBUS, NULL, &now) || pthread_sigmask(SIG_BLOCK, NULL, &blocked) ||
        sigismember(&blocked, SIGBUS))
        Py_RETURN_FALSE;
    int is_ours = now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error;
    if (!installed && !is_ours) {
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = on_bus_error;
        /* not blocked while it runs: it is left by a jump */
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        before = now;
        installed = is_ours = !sigaction(SIGBUS, &ours, NULL);
    }
    return PyBool_FromLong(is_ours);
}
