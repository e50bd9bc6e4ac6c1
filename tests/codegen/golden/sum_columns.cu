KERNEL(256) void outer(const bf16* __restrict__ g_in0, bf16* __restrict__ g_out0, u32* g_counters, f32* g_partial0, FastDiv p0, i32 p1, i32 p2, i32 p3, i32 p4, i32 p5, i32 p6) {
  f32* s_sum0 = (f32*)(shared_memory());
  i32* s_last = (i32*)(shared_memory() + 8192);
  f32* s_sum1 = (f32*)(shared_memory() + 8208);
  f32 r_sum1[8];
  Raw<bf16, 8> q_in0[8];
  bf16 r_in0[8];
  f32 r_partial0[32];
  bf16 r_v2[8];
  bf16 r_out0[8];
  const i32 v0 = thread_x() % 8;
  const i32 v1 = thread_x() / 8;
  const i32 v2 = fast_mod_(block_x(), p0);
  const i32 v3 = fast_div_(block_x(), p0);
  reset<Sum>(r_sum1);
  const i32 v4 = v2 * 64;
  const i32 v5 = v0 * 8;
  const i32 v6 = v3 * 256;
  const i32 v7 = v4 + v5;
  const bool v8 = v7 < p1;
  for (i32 v9 = 0; v9 < p2; ++v9) {
    const i32 v10 = ((v9 * p3) * 256) + v6;
    UNROLL for (i32 v11 = 0; v11 < 8; ++v11) {
      const i32 v12 = ((v11 * 32) + v1) + v10;
      const bool v13 = v8 && (v12 < p4);
      load_raw_if(q_in0[v11], g_in0 + (((v12 * p1) + v4) + v5), v13);
    }
    UNROLL for (i32 v11 = 0; v11 < 8; ++v11) {
      const i32 v14 = ((v11 * 32) + v1) + v10;
      const bool v15 = v8 && (v14 < p4);
      if (v15) {
        unpack(r_in0, q_in0[v11]);
        UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
          accumulate_(Sum(), r_sum1[v16], to<f32>(r_in0[v16]));
        }
      }
    }
  }
  reduce_rows<Sum, 32, 8>(r_sum1, s_sum0);
  const i32 v17 = (((v3 * p5) * 64) + v4) + v5;
  const bool v18 = v1 == 0;
  UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
    if (v18) store_partial(g_partial0 + (v16 + v17), r_sum1[v16]);
  }
  const bool v19 = last_block(g_counters + v2, p3, (u32*)s_last);
  if (v19) {
    reset<Sum>(r_sum1);
    for (i32 v20 = 0; v20 < p6; ++v20) {
      reset<Sum>(r_partial0);
      const i32 v21 = v20 * 4;
      UNROLL for (i32 v22 = 0; v22 < 4; ++v22) {
        const i32 v23 = ((v21 + v22) * 32) + v1;
        const i32 v24 = (((v23 * p5) * 64) + v4) + v5;
        const bool v25 = v23 < p3;
        UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
          if (v25) r_partial0[(v22 * 8) + v16] = load_partial(g_partial0 + (v16 + v24));
        }
      }
      UNROLL for (i32 v22 = 0; v22 < 4; ++v22) {
        UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
          r_sum1[v16] = merge_(Sum(), r_sum1[v16], r_partial0[(v22 * 8) + v16]);
        }
      }
    }
    reduce_rows<Sum, 32, 8>(r_sum1, s_sum1);
    UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
      const bf16 v26 = to<bf16>(r_sum1[v16]);
      r_v2[v16] = v26;
    }
    UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
      r_out0[v16] = r_v2[v16];
    }
    store_if(g_out0 + v7, r_out0, v18 && v8);
  }
}
