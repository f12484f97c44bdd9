// SYNTAX TEST "source.p4" "the parts of a program"

#include <core.p4>
//<------ keyword.control.directive.p4
//       ^^^^^^^^^ string.quoted.include.p4

#define SLOTS 16 // how many
//<----- keyword.control.directive.p4
//      ^^^^^ entity.name.function.preprocessor.p4
//            ^^ constant.numeric.p4
//               ^^^^^^^^^^^ comment.line.double-slash.p4

const bit<16> TYPE = 0x88b6; /* local */
//<---- storage.modifier.p4
//    ^^^ storage.type.p4
//        ^^ constant.numeric.p4
//            ^^^^ constant.other.p4
//                   ^^^^^^ constant.numeric.p4
//                           ^^^^^^^^^^^ comment.block.p4

header ethernet_t {
//<----- storage.type.p4
//     ^^^^^^^^^^ entity.name.type.p4
    bit<48> destination;
//          ^^^^^^^^^^^ variable.other.p4
}

control Ingress(inout headers_t hdr) {
//<------ storage.type.p4
//      ^^^^^^^ entity.name.function.p4
//              ^^^^^ storage.modifier.p4
//                    ^^^^^^^^^ entity.name.type.p4
    @name("forward") table routes {
//  ^ punctuation.definition.annotation.p4
//   ^^^^ storage.type.annotation.p4
//       ^ - storage.type.annotation.p4
//        ^^^^^^^^^ string.quoted.double.p4
//                   ^^^^^ storage.type.p4
//                         ^^^^^^ entity.name.function.p4
        key = { hdr.ethernet.destination: exact; }
//      ^^^ support.type.property-name.p4
//                           ^^^^^^^^^^^ variable.other.member.p4
//                                        ^^^^^ support.constant.match-kind.p4
    }
    apply {
//  ^^^^^ keyword.control.p4
        if (routes.apply().hit && 8w255 > 4s7) { hdr.x = _; }
//      ^^ keyword.control.p4
//                 ^^^^^ variable.other.member.p4
//                             ^^ keyword.operator.p4
//                                ^^^^^ constant.numeric.p4
//                                               ^^^ variable.other.p4
//                                                       ^ constant.language.anything.p4
        mark_to_drop(standard);
//      ^^^^^^^^^^^^ entity.name.function.call.p4
    }
}
