/* The objects that a program declares to `ledgerline layout record`.
 *
 * The recorder finds global variables by their type and blocks of the heap by their size. If that is not enough, as
 * for pools, arenas and several types of one size, the program declares the place of each object. Nothing happens in
 * a program that is not recorded, and nothing needs to be linked for it.
 */
#ifndef LEDGERLINE_RECORD_H
#define LEDGERLINE_RECORD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by the library; null in a program that runs without it. */
extern void ledgerline_record_object(const void *start, const char *type) __attribute__((weak));
extern void ledgerline_record_array(const void *start, size_t count, const char *type) __attribute__((weak));
extern void ledgerline_record_forget(const void *start, size_t size) __attribute__((weak));

#ifdef __cplusplus
}
#endif

/* Declares that a value of a type lies at an address: LEDGERLINE_OBJECT(counter, "page_counter"). */
#define LEDGERLINE_OBJECT(start, type) \
	((void)(ledgerline_record_object && (ledgerline_record_object((start), (type)), 1)))

/* Declares that `count` values of a type lie in a row. */
#define LEDGERLINE_ARRAY(start, count, type) \
	((void)(ledgerline_record_array && (ledgerline_record_array((start), (count), (type)), 1)))

/* Forgets the objects in `size` bytes. Memory freed by free() is forgotten automatically. */
#define LEDGERLINE_FORGET(start, size) \
	((void)(ledgerline_record_forget && (ledgerline_record_forget((start), (size)), 1)))

#endif
