#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/store/sources/source.h"

namespace gyre::store {

/// An object that is to be put, without its bytes.
struct NewObject {
  std::string name;        ///< Below the root of the source that it is put into.
  std::string encoding{};  ///< Its Content-Encoding; empty: none.
};

/// What an object's bytes add up to, in the blocks in which they are put.
struct Contents {
  std::uint64_t size_bytes = 0;
  Md5 md5{};
  std::vector<Md5> blocks{};  ///< Of each.
};

/// Puts objects into one source, one after the other. Requests that fail are tried again for as long as the patience;
/// each carries the MD5 of its bytes, which the server compares. Error as for ObjectReader::read(); kIo at the end of
/// the patience. Not thread-safe: one per thread.
class ObjectPutter {
 public:
  virtual ~ObjectPutter() = default;

  /// Why the service would keep an object of this name under another one; empty where it would not.
  virtual std::string_view trouble_with(const NewObject& /*object*/) const { return {}; }

  /// What is there, by the names of NewObject; nothing where we may not list. Error(kNotFound) where there is no such
  /// container or bucket.
  virtual std::optional<std::map<std::string, Object>> list() = 0;

  /// A small object, by one request.
  virtual void put(const NewObject& object, std::span<const std::byte> body, const Md5& md5) = 0;

  // A large one: begin(), put_block() of those that are missing, in any order and from several putters, commit().
  // It is seen by others when it is committed.

  /// What an earlier upload of the object has left there.
  struct Begun {
    std::string id{};                               ///< For put_block() and commit().
    std::map<std::uint32_t, std::string> blocks{};  ///< Their tags, by number.
  };
  /// `first_tag`: of the object's block 0. An earlier upload that has begun otherwise is left alone.
  virtual Begun begin(const NewObject& object, const std::string& first_tag) = 0;
  /// What names a block with these bytes.
  virtual std::string tag_of(std::uint32_t number, const Md5& md5) const = 0;
  virtual void put_block(const NewObject& object, const std::string& id, std::uint32_t number,
                         std::span<const std::byte> bytes, const Md5& md5) = 0;
  /// `tags`: of all blocks, in their order.
  virtual void commit(const NewObject& object, const std::string& id, const std::vector<std::string>& tags,
                      const Md5& md5) = 0;

  /// Whether an object of the source's listing holds these bytes, in this encoding.
  virtual bool holds(const Object& there, const NewObject& object, const Contents& contents) = 0;
};

}  // namespace gyre::store
