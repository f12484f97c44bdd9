/* Macros by which a library tells Python its structs and numbers; shared.py compares them.
 *
 *     SHARE_STRUCT(drops, FIELD(too_long) FIELD(too_often))
 *     SHARE_NUMBER(LONGEST_PACKET);
 *
 * Write each once, in a .c file. A struct lists all its fields, in their order. */

#ifndef NATIVE_SHARED_H
#define NATIVE_SHARED_H

#include <stddef.h>

struct shared_field {
    const char *name;
    size_t offset, size;
};

/* Defines a function that returns the fields. The first entry has no name and stands for the whole struct. */
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
