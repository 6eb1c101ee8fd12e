"""Commands and the log entries they travel in: decoded in place, encoded once.

Slices and lists of a decoded command point into the frame it came from. A slice whose `data` is NULL stands for a
field that is absent; one with `data` and no size is present and empty.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastlock._core.buffer cimport buffer_t
from fastlock._core.types cimport command_t, slice_t
from fastlock._core.wire cimport bytes_element, list_t, message_t, struct_t


cdef enum:
    BATCH_COMMANDS_MAX = 1024
    BATCH_BYTES_MAX = 256 << 10      # of an entry's frame


# A log entry opened in place: header fields, and its commands one by one through `entry_command`.
cdef struct entry_t:
    message_t message
    uint16_t version
    uint16_t kind                    # EntryKind
    uint16_t membership_version
    uint8_t membership_present
    uint32_t group
    uint64_t term
    uint64_t index
    list_t commands
    list_t members


cdef struct member_t:
    uint64_t node
    uint64_t incarnation
    uint16_t role                    # MemberRole, raw
    slice_t address


cdef struct membership_t:
    uint16_t version
    uint32_t count
    const member_t* members          # NULL leaves the list out


cdef struct setting_t:
    uint16_t id                      # SettingId, raw
    uint64_t value


# An entry under construction: fixed-size structs and what they point to grow side by side. Zeroed is empty.
cdef struct builder_t:
    buffer_t structs
    buffer_t blobs
    uint32_t count


# CODE_OK, CODE_MALFORMED_FRAME, CODE_UNKNOWN_COMMAND or WIRE_FAR.
cdef int command_decode(message_t* message, const struct_t* view, command_t* out) noexcept nogil

# Element i < list_count: of acquireAll's and cancelWait's keys, of importSlots' rows.
cdef inline slice_t command_item(const command_t* command, uint32_t i) noexcept nogil:
    return bytes_element(command.list_data, i)

# Element i < list_count of configure's settings.
cdef setting_t command_setting(const command_t* command, uint32_t i) noexcept nogil

# CODE_OK, CODE_MALFORMED_FRAME (also: several segments), CODE_UNSUPPORTED_VERSION, CODE_UNKNOWN_COMMAND (kind).
cdef int entry_open(const uint8_t* frame, size_t size, entry_t* out) noexcept nogil

# Command i < entry.commands.count. One pass over all of them is what the entry's budget allows; another pass starts
# with `entry_rewind`.
cdef int entry_command(entry_t* entry, uint32_t i, command_t* out) noexcept nogil
cdef void entry_rewind(entry_t* entry) noexcept nogil

# Member i < members.count. What returned the list checked it, so that this cannot fail within one pass.
cdef int member_decode(message_t* message, const list_t* members, uint32_t i, member_t* out) noexcept nogil

# Size of an entry's frame if it were sealed after one more command.
cdef size_t builder_bytes_with(const builder_t* builder, const command_t* command) noexcept nogil
# 0, or -1 without memory: then the builder is as before.
cdef int builder_add(builder_t* builder, const command_t* command) noexcept nogil
cdef size_t builder_bytes(const builder_t* builder) noexcept nogil
# Writes the batch entry of `builder_bytes` bytes to `out`, and empties the builder.
cdef void builder_seal(builder_t* builder, uint32_t group, uint64_t term, uint64_t index, uint8_t* out) noexcept nogil
cdef void builder_clear(builder_t* builder) noexcept nogil
cdef void builder_free(builder_t* builder) noexcept nogil

# A Command struct at `target` and what it points to at `cursor`, for messages that carry one. Its pointers are offsets
# from `blobs` until `command_point` is told how many words lie between `target` and `blobs` in the message.
cdef size_t command_blob_words(const command_t* command) noexcept nogil
cdef uint8_t* command_write(uint8_t* target, const uint8_t* blobs, uint8_t* cursor,
                            const command_t* command) noexcept nogil
cdef void command_point(uint8_t* target, int64_t distance_words) noexcept nogil

# Whole frames, appended to `out`; 0, or -1 without memory.
cdef int entry_encode_noop(buffer_t* out, uint32_t group, uint64_t term, uint64_t index) noexcept nogil
cdef int entry_encode_membership(buffer_t* out, uint32_t group, uint64_t term, uint64_t index,
                                 const membership_t* membership) noexcept nogil

# A Membership struct, for the messages and rows that carry one. Every member is checked.
cdef int membership_read(message_t* message, const uint8_t* pointer, uint8_t* present, uint16_t* version,
                         list_t* members) noexcept nogil
cdef size_t membership_words(const membership_t* membership) noexcept nogil
cdef uint8_t* membership_write(uint8_t* pointer, uint8_t* cursor, const membership_t* membership) noexcept nogil

# A frame whose root is a Membership.
cdef int membership_open(const uint8_t* frame, size_t size, message_t* message, uint16_t* version,
                         list_t* members) noexcept nogil
cdef int membership_encode(buffer_t* out, const membership_t* membership) noexcept nogil
