/* XXH64 of the values of Arrow columns, each with a seed of its own.
 *
 * Source: the specification of XXH64 in the xxHash repository, section "XXH64 Algorithm Description". Called through
 * ctypes.CDLL, so without the interpreter's lock. Nothing is allocated and nothing can fail. Little-endian machines
 * alone, as all that Arrow and this package run on.
 */
#include <stdint.h>
#include <string.h>

#define PRIME1 0x9E3779B185EBCA87ULL
#define PRIME2 0xC2B2AE3D27D4EB4FULL
#define PRIME3 0x165667B19E3779F9ULL
#define PRIME4 0x85EBCA77C2B2AE63ULL
#define PRIME5 0x27D4EB2F165667C5ULL

static inline uint64_t rotated(uint64_t number, int bits) { return number << bits | number >> (64 - bits); }

static inline uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline uint64_t round_of(uint64_t lane, uint64_t word) { return rotated(lane + word * PRIME2, 31) * PRIME1; }

static inline uint64_t merged(uint64_t digest, uint64_t lane) { return (digest ^ round_of(0, lane)) * PRIME1 + PRIME4; }

static inline uint64_t avalanche(uint64_t digest)
{
    digest = (digest ^ digest >> 33) * PRIME2;
    digest = (digest ^ digest >> 29) * PRIME3;
    return digest ^ digest >> 32;
}

static uint64_t xxh64(const uint8_t *at, uint64_t length, uint64_t seed)
{
    const uint8_t *end = at + length;
    uint64_t digest;
    if (length >= 32) {
        uint64_t a = seed + PRIME1 + PRIME2, b = seed + PRIME2, c = seed, d = seed - PRIME1;
        for (; end - at >= 32; at += 32) {
            a = round_of(a, word_at(at));
            b = round_of(b, word_at(at + 8));
            c = round_of(c, word_at(at + 16));
            d = round_of(d, word_at(at + 24));
        }
        digest = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
        digest = merged(merged(merged(merged(digest, a), b), c), d);
    } else {
        digest = seed + PRIME5;
    }
    digest += length;
    for (; end - at >= 8; at += 8)
        digest = rotated(digest ^ round_of(0, word_at(at)), 27) * PRIME1 + PRIME4;
    if (end - at >= 4) {
        uint32_t half;
        memcpy(&half, at, sizeof half);
        digest = rotated(digest ^ half * PRIME1, 23) * PRIME2 + PRIME3;
        at += 4;
    }
    for (; at < end; at++)
        digest = rotated(digest ^ *at * PRIME5, 11) * PRIME1;
    return avalanche(digest);
}

/* hashes[i] := the hash of value i with seed hashes[i]; a null leaves it as it is.
 *
 * first: the column's offset into its buffers; valid: its validity bitmap or NULL; ends: its offsets, of 8 bytes each
 * where is_large, else of 4. */
void hash_binary(int64_t count, int64_t first, const uint8_t *valid, const void *ends, int is_large,
                 const uint8_t *content, uint64_t *hashes)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i, begin, end;
        if (valid && !(valid[at >> 3] >> (at & 7) & 1))
            continue;
        if (is_large) {
            begin = ((const int64_t *)ends)[at];
            end = ((const int64_t *)ends)[at + 1];
        } else {
            begin = ((const int32_t *)ends)[at];
            end = ((const int32_t *)ends)[at + 1];
        }
        hashes[i] = xxh64(content + begin, (uint64_t)(end - begin), hashes[i]);
    }
}

/* hashes[i] := the hash of the eight bytes of numbers[i] with seed hashes[i]. */
void hash_int64(int64_t count, const uint64_t *numbers, uint64_t *hashes)
{
    for (int64_t i = 0; i < count; i++)
        hashes[i] = avalanche(rotated((hashes[i] + PRIME5 + 8) ^ round_of(0, numbers[i]), 27) * PRIME1 + PRIME4);
}
