#pragma once

#include <cstdint>

// What libgyre_parquet.so, the one library of ours that is built with Apache Arrow, offers to the rest. Between the two
// there are only structures and functions of C: no class of Arrow, no exception, no memory that one allocates and the
// other frees. Columns arrive by Arrow's C data interface (https://arrow.apache.org/docs/format/CDataInterface.html),
// whose structures every user declares for itself.

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
}
#endif

namespace gyre::data::parquet {

/// Changes with everything below.
inline constexpr std::uint32_t kInterfaceVersion = 3;

/// What became of a call; `why` says it in words unless it is kDone.
enum class Outcome : std::int32_t {
  kDone,
  kCorrupt,       ///< The file is damaged.
  kUnsupported,   ///< The file is in order, but Arrow cannot read it.
  kNoMemory,      ///< Memory::reserve has refused.
  kSourceFailed,  ///< Source::read_at has failed, and knows why.
};

/// Where the plugin writes a message, cut where it is longer; it ends with a zero.
struct Text {
  char* into;
  std::uint64_t bytes;
};

/// A file's bytes. Called by the thread that calls the plugin, and by no other.
struct Source {
  void* context;
  std::uint64_t size_bytes;
  /// Only asked for bytes below size_bytes. False: it has failed.
  bool (*read_at)(void* context, std::uint64_t offset_bytes, void* into, std::uint64_t bytes);
};

/// Asked before Arrow allocates. From several threads at once.
struct Memory {
  void* context;
  bool (*reserve)(void* context, std::uint64_t bytes);
  void (*release)(void* context, std::uint64_t bytes);
};

/// Takes the parts of a column, in order; it must release each.
struct Parts {
  void* context;
  void (*add)(void* context, ArrowArray* part);
};

struct Range {
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
};

struct Pool;
struct File;

/// Files are numbered from 0 in row groups, and within the schema in leaves: columns that hold values, depth first. One
/// thread at a time may use a File.
struct Interface {
  std::uint32_t version;
  const char* arrow_version;
  /// Null where memory has run out. The pool outlives its files, and all arrays that were read from them.
  Pool* (*make_pool)(const Memory* memory);
  void (*free_pool)(Pool* pool);
  /// Reads the footer.
  Outcome (*open)(const Source* source, Pool* pool, File** opened, Text why);
  void (*close)(File* file);
  std::uint64_t (*row_groups)(const File* file);
  std::uint64_t (*rows)(const File* file, std::uint64_t row_group);
  std::uint64_t (*leaves)(const File* file);
  /// Before compression, and how many values, as the footer says.
  std::uint64_t (*leaf_bytes)(const File* file, std::uint64_t row_group, std::uint64_t leaf);
  std::uint64_t (*leaf_values)(const File* file, std::uint64_t row_group, std::uint64_t leaf);
  /// Where they lie in the file, as the footer says: a hint, which may be wrong, or nothing (0 bytes).
  Range (*leaf_range)(const File* file, std::uint64_t row_group, std::uint64_t leaf);
  Outcome (*schema)(const File* file, ArrowSchema* into, Text why);
  /// The values of one leaf, within all structs and lists around it, in parts of this many rows (1 or more; the last
  /// may have fewer).
  Outcome (*read)(const File* file, std::uint64_t row_group, std::uint64_t leaf, std::uint64_t rows_per_part,
                  const Parts* parts, Text why);
};

/// The name and the type of the library's one function.
inline constexpr const char* kEntry = "gyre_parquet_interface";
using Entry = const Interface* (*)();

}  // namespace gyre::data::parquet
