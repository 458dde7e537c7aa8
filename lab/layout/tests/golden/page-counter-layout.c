#include <stddef.h>
_Static_assert((offsetof(struct page_counter, min) + 7) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert(offsetof(struct page_counter, low) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert((offsetof(struct page_counter, low) + 7) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert(offsetof(struct page_counter, high) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert((offsetof(struct page_counter, high) + 7) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert(offsetof(struct page_counter, max) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert((offsetof(struct page_counter, max) + 7) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert(offsetof(struct page_counter, parent) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert((offsetof(struct page_counter, parent) + 7) / 64 == offsetof(struct page_counter, min) / 64, "page_counter: min, low, high, max, parent");
_Static_assert(((offsetof(struct page_counter, usage) + 7) / 64 < offsetof(struct page_counter, min) / 64 || (offsetof(struct page_counter, min) + 7) / 64 < offsetof(struct page_counter, usage) / 64), "page_counter: usage apart from min");
_Static_assert(((offsetof(struct page_counter, usage) + 7) / 64 < offsetof(struct page_counter, low) / 64 || (offsetof(struct page_counter, low) + 7) / 64 < offsetof(struct page_counter, usage) / 64), "page_counter: usage apart from low");
_Static_assert(((offsetof(struct page_counter, usage) + 7) / 64 < offsetof(struct page_counter, high) / 64 || (offsetof(struct page_counter, high) + 7) / 64 < offsetof(struct page_counter, usage) / 64), "page_counter: usage apart from high");
_Static_assert(((offsetof(struct page_counter, usage) + 7) / 64 < offsetof(struct page_counter, max) / 64 || (offsetof(struct page_counter, max) + 7) / 64 < offsetof(struct page_counter, usage) / 64), "page_counter: usage apart from max");
_Static_assert(((offsetof(struct page_counter, usage) + 7) / 64 < offsetof(struct page_counter, parent) / 64 || (offsetof(struct page_counter, parent) + 7) / 64 < offsetof(struct page_counter, usage) / 64), "page_counter: usage apart from parent");
_Static_assert(offsetof(struct page_counter, usage) % 64 == 0, "page_counter: usage begins a line");
_Static_assert(sizeof(struct page_counter) <= 192, "page_counter: size");
