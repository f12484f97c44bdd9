/* What a library tells Python of the structs and numbers that both use; shared.py compares.
 *
 *     SHARE_STRUCT(drops, FIELD(too_long) FIELD(too_often))
 *     SHARE_NUMBER(LONGEST_PACKET);
 *
 * once each, in a .c file: of a struct every field, in its order. */

#ifndef NATIVE_SHARED_H
#define NATIVE_SHARED_H

#include <stddef.h>

struct shared_field {
    const char *name;
    size_t offset, size;
};

/* A function that returns the fields, behind one without a name for the whole struct. */
#define SHARE_STRUCT(struct_name, fields)                                                  \
    const struct shared_field *shared_struct_##struct_name(void);                          \
    const struct shared_field *shared_struct_##struct_name(void)                           \
    {                                                                                      \
        typedef struct struct_name self;                                                   \
        static const struct shared_field table[] = {{"", 0, sizeof(self)}, fields {0}};    \
        return table;                                                                      \
    }

#define FIELD(field) {#field, offsetof(self, field), sizeof((self *)0)->field},

#define SHARE_NUMBER(number)              \
    extern const double shared_##number;  \
    const double shared_##number = (number)

#endif
