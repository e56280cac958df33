/* crc32c, by the processor where it can, else by tables; both give the same values. */
#include "_payload.h"

static uint32_t TABLE[8][256];

static void
fill_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        TABLE[0][byte] = crc;
    }
    for (int i = 1; i < 8; i++)
        for (int byte = 0; byte < 256; byte++)
            TABLE[i][byte] = TABLE[i - 1][byte] >> 8 ^ TABLE[0][TABLE[i - 1][byte] & 255];
}

static uint32_t
crc_by_table(uint32_t crc, const unsigned char *at, size_t count)
{
    for (; count >= 8; at += 8, count -= 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = TABLE[7][crc & 255] ^ TABLE[6][crc >> 8 & 255] ^ TABLE[5][crc >> 16 & 255] ^
              TABLE[4][crc >> 24] ^ TABLE[3][at[4]] ^ TABLE[2][at[5]] ^ TABLE[1][at[6]] ^
              TABLE[0][at[7]];
    }
    while (count--)
        crc = crc >> 8 ^ TABLE[0][(crc ^ *at++) & 255];
    return crc;
}

typedef uint32_t (*Crc)(uint32_t crc, const unsigned char *at, size_t count);

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc_by_hardware(uint32_t crc, const unsigned char *at, size_t count)
{
    uint64_t wide = crc, word;
    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    while (count--)
        crc = __builtin_ia32_crc32qi(crc, *at++);
    return crc;
}

static Crc
best_crc(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") ? crc_by_hardware : crc_by_table;
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t
crc_by_hardware(uint32_t crc, const unsigned char *at, size_t count)
{
    uint64_t word;
    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, 8);
        crc = __crc32cd(crc, word);
    }
    while (count--)
        crc = __crc32cb(crc, *at++);
    return crc;
}

static Crc
best_crc(void)
{
    return crc_by_hardware;
}
#else
static Crc
best_crc(void)
{
    return crc_by_table;
}
#endif

static Crc crc_of = crc_by_table;

void
prepare_crc(void)
{
    fill_tables();
    crc_of = best_crc();
}

uint32_t
page_crc(const char *bytes, size_t count)
{
    return ~crc_of(~(uint32_t)0, (const unsigned char *)bytes, count);
}

PyObject *
crc32c(PyObject *Py_UNUSED(module), PyObject *const *args, Index nargs)
{
    static const Wanted wanted = {"data", BYTES, 0, 0};
    Py_buffer data;
    Index plain;
    if (wrong_count("crc32c", nargs, 2) || get_int(args[1], &plain, 0, 1, "plain") ||
        get_array(args[0], &data, &wanted))
        return NULL;
    Crc crc = plain ? crc_by_table : crc_of;
    uint32_t found = ~crc(~(uint32_t)0, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(found);
}
