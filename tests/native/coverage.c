/* What the fuzzer sees of the C: which steps from one piece of code to the next an input takes that none took before.
 * Linked into the sanitized build alone; gcc calls __sanitizer_cov_trace_pc in each piece (-fsanitize-coverage=trace-pc). */

#include <stdint.h>
#include <string.h>

enum { CELLS = 1 << 16 };
static uint8_t now[CELLS];  /* how often each step was taken since the last question */
static uint8_t seen[CELLS]; /* a bit for each order of magnitude of that */
static uintptr_t previous;

__attribute__((visibility("hidden"), no_sanitize_coverage)) void
__sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0) - (uintptr_t)now;
    uintptr_t cell = (here ^ previous) % CELLS;
    now[cell] += now[cell] < UINT8_MAX;
    previous = here >> 1;
}

__attribute__((visibility("default"), no_sanitize_coverage)) void
aiogroup_forget_steps(void)
{
    memset(now, 0, sizeof(now));
    memset(seen, 0, sizeof(seen));
}

/* How many steps were taken for the first time, or for the first time that often, since this was asked last. */
__attribute__((visibility("default"), no_sanitize_coverage)) int
aiogroup_new_steps(void)
{
    int new_count = 0;
    for (int cell = 0; cell < CELLS; cell++) {
        if (now[cell] != 0) {
            uint8_t bit = (uint8_t)(1 << (now[cell] < 4 ? now[cell] - 1 : 31 - __builtin_clz(now[cell]) + 1) % 8);
            new_count += (seen[cell] & bit) == 0;
            seen[cell] |= bit;
        }
    }
    memset(now, 0, sizeof(now));
    previous = 0;
    return new_count;
}
