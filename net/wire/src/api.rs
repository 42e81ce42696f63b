//! The `api!` form.

/// Declares one API: its [`ApiSpec`](crate::ApiSpec) and the structs of its request and response, in Kafka's names.
///
/// `field: Type = versions [, nullable versions] [, tag n] [, default value];` Plain fields stand in the order of the wire; tagged
/// ones follow them, by rising tag, and only those that differ from their default. What a version lacks is its default. A nullable
/// type may be null in all versions that have the field, unless `nullable` narrows that; there null fails to decode, and is encoded
/// as empty.
///
/// `format Struct = key, versions ..., flexible ...;` in place of the API declares bytes that stand elsewhere than in a frame: see
/// [`Format`](crate::Format).
macro_rules! api {
    (
        $(#[$api_meta:meta])*
        api $A:ident $name:literal = $key:literal, versions $min:literal ..= $max:literal, flexible $flexible:literal,
            $overlap:ident, $Request:ident, $Response:ident;
        $($(#[$struct_meta:meta])* struct $S:ident $(<$lt:lifetime>)? {
            $($(#[$field_meta:meta])* $f:ident : $t:ty = $v:expr
                $(, nullable $n:expr)? $(, tag $tag:literal)? $(, default $d:expr)?;)*
        })*
    ) => {
        $(#[$api_meta])*
        pub const $A: $crate::ApiSpec = $crate::ApiSpec {
            key: $key,
            name: $name,
            versions: ($min, $max),
            flexible: $flexible,
            overlap: $crate::Overlap::$overlap,
        };
        pub(crate) const INFO: $crate::ApiInfo = $crate::ApiInfo {
            spec: $A,
            request: <$Request as $crate::Field>::KIND,
            response: <$Response as $crate::Field>::KIND,
            elements: |version, body, pieces| $crate::count_elements::<$Request>(&$A, version, body, pieces),
        };
        api!(@structs $($(#[$struct_meta])* struct $S $(<$lt>)? {
            $($(#[$field_meta])* $f : $t = $v $(, nullable $n)? $(, tag $tag)? $(, default $d)?;)*
        })*);
    };

    (
        $(#[$format_meta:meta])*
        format $F:ty = $key:literal, versions $min:literal ..= $max:literal, flexible $flexible:literal;
        $($structs:tt)*
    ) => {
        $(#[$format_meta])*
        impl $crate::Format for $F {
            const SPEC: $crate::FormatSpec =
                $crate::FormatSpec { key: $key, versions: ($min, $max), flexible: $flexible };
        }
        api!(@structs $($structs)*);
    };

    (@structs
        $($(#[$struct_meta:meta])* struct $S:ident $(<$lt:lifetime>)? {
            $($(#[$field_meta:meta])* $f:ident : $t:ty = $v:expr
                $(, nullable $n:expr)? $(, tag $tag:literal)? $(, default $d:expr)?;)*
        })*
    ) => {
        $(
            $(#[$struct_meta])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $S $(<$lt>)? { $($(#[$field_meta])* pub $f: $t,)* }

            impl $(<$lt>)? Default for $S $(<$lt>)? {
                fn default() -> Self {
                    Self { $($f: api!(@default $($d)?),)* }
                }
            }

            impl<'a> $crate::Field<'a> for $S $(<$lt>)? {
                const KIND: $crate::Kind = $crate::Kind::Struct(&$crate::StructInfo {
                    name: stringify!($S),
                    fields: &[$($crate::FieldInfo {
                        name: stringify!($f),
                        kind: <$t as $crate::Field>::KIND,
                        versions: |version| ($v).contains(&version),
                        nullable: |version| api!(@nullable ($v) [$($n)?]).contains(&version),
                        tag: api!(@tag $($tag)?),
                        default: |w| $crate::Field::write(&Self::default().$f, w),
                    },)*],
                });

                fn read(r: &mut $crate::Reader<'a>) -> Result<Self, $crate::WireError> {
                    let mut s = Self::default();
                    $( api!(@read s r $f ($v) [$($n)?] [$($tag)?]); )*
                    if r.flexible {
                        r.tags(|_tag, _r| match _tag {
                            $($( $tag => {
                                _r.field = stringify!($f);
                                // A known tag in a version that has it not is no field of the future: Kafka refuses it too.
                                if !($v).contains(&_r.version) {
                                    return Err($crate::WireError::Value { field: _r.field, value: $tag });
                                }
                                s.$f = $crate::Field::read_tagged(_r)?;
                                Ok(true)
                            } )?)*
                            _ => Ok(false),
                        })?;
                    }
                    Ok(s)
                }

                fn write(&self, w: &mut $crate::Writer) {
                    $( api!(@write self w $f ($v) [$($n)?] [$($tag)?]); )*
                    if w.flexible {
                        let _absent = Self::default();
                        let mut _count = 0;
                        $( api!(@tags self w _absent $f ($v) [$($tag)?] (_count += 1)); )*
                        w.uvar(_count);
                        $($( api!(@tags self w _absent $f ($v) [$tag]
                            (w.tag($tag, |w| $crate::Field::write_tagged(&self.$f, w)))); )?)*
                    }
                }
            }

            impl<'a> $crate::Field<'a> for Option<$S $(<$lt>)?> {
                const KIND: $crate::Kind = $crate::Kind::Nullable(&<$S as $crate::Field>::KIND);

                fn read(r: &mut $crate::Reader<'a>) -> Result<Self, $crate::WireError> {
                    match r.array()? {
                        [0xff] => Ok(None),
                        [1] => $crate::Field::read(r).map(Some),
                        [byte] => Err($crate::WireError::Value { field: r.field, value: i64::from(byte) }),
                    }
                }

                fn write(&self, w: &mut $crate::Writer) {
                    match self {
                        None => w.extend(&[0xff]),
                        Some(present) => {
                            w.extend(&[1]);
                            $crate::Field::write(present, w);
                        }
                    }
                }

                fn read_tagged(r: &mut $crate::Reader<'a>) -> Result<Self, $crate::WireError> {
                    match r.uvar()? {
                        0 => Ok(None),
                        1 => $crate::Field::read(r).map(Some),
                        value => Err($crate::WireError::Value { field: r.field, value: i64::from(value) }),
                    }
                }

                fn write_tagged(&self, w: &mut $crate::Writer) {
                    w.uvar(u32::from(self.is_some()));
                    if let Some(present) = self {
                        $crate::Field::write(present, w);
                    }
                }

                fn is_null(&self) -> bool {
                    self.is_none()
                }
            }
        )*
    };

    (@default) => { Default::default() };
    (@default $d:expr) => { $d };
    (@tag) => { None };
    (@tag $tag:literal) => { Some($tag) };
    (@nullable ($v:expr) []) => { ($v) };
    (@nullable ($v:expr) [$n:expr]) => { ($n) };

    (@read $s:ident $r:ident $f:ident ($v:expr) [] []) => {
        if ($v).contains(&$r.version) {
            $r.field = stringify!($f);
            $s.$f = $crate::Field::read($r)?;
        }
    };
    (@read $s:ident $r:ident $f:ident ($v:expr) [$n:expr] []) => {
        api!(@read $s $r $f ($v) [] []);
        if ($v).contains(&$r.version) && !($n).contains(&$r.version) && $crate::Field::is_null(&$s.$f) {
            return Err($crate::WireError::Length { field: stringify!($f), value: -1 });
        }
    };
    (@read $s:ident $r:ident $f:ident ($v:expr) [$($n:expr)?] [$tag:literal]) => {};

    (@write $s:ident $w:ident $f:ident ($v:expr) [] []) => {
        if ($v).contains(&$w.version) {
            $crate::Field::write(&$s.$f, $w);
        }
    };
    (@write $s:ident $w:ident $f:ident ($v:expr) [$n:expr] []) => {
        if ($v).contains(&$w.version) {
            if ($n).contains(&$w.version) {
                $crate::Field::write(&$s.$f, $w);
            } else {
                $crate::Field::write_present(&$s.$f, $w);
            }
        }
    };
    (@write $s:ident $w:ident $f:ident ($v:expr) [$($n:expr)?] [$tag:literal]) => {};

    (@tags $s:ident $w:ident $absent:ident $f:ident ($v:expr) [] ($($then:tt)*)) => {};
    (@tags $s:ident $w:ident $absent:ident $f:ident ($v:expr) [$tag:literal] ($($then:tt)*)) => {
        if ($v).contains(&$w.version) && $s.$f != $absent.$f {
            $($then)*;
        }
    };
}
pub(crate) use api;
