KERNEL2(256, 4) void outer(const bf16* __restrict__ g_in0, bf16* __restrict__ g_out0, u32* g_counters, f32* g_partial0, FastDiv p0, i32 p1, i32 p2, i32 p3, i32 p4, i32 p5, i32 p6) {
  f32* s_sum0 = (f32*)(shared_memory());
  i32* s_last = (i32*)(shared_memory() + 8192);
  f32 r_sum1[8];
  Raw<bf16, 8> q_in0[8];
  bf16 r_in0[8];
  f32 r_sum1_all[8];
  f32 r_partial0[32];
  bf16 r_v2[8];
  bf16 r_out0[8];
  const i32 v0 = thread_x() % 8;
  const i32 v1 = thread_x() / 8;
  const i32 v2 = fast_mod_(block_x(), p0);
  const i32 v3 = fast_div_(block_x(), p0);
  reset<Sum>(r_sum1);
  reset<Sum>(r_sum1_all);
  const i32 v4 = v3 * 256;
  const i32 v5 = v0 * 8;
  const i32 v6 = v2 * 64;
  const i32 v7 = v5 + v6;
  const bool v8 = v7 < p1;
  for (i32 v9 = 0; v9 < p2; ++v9) {
    const i32 v10 = ((v9 * p3) * 256) + v4;
    const bool v11 = v8 && (((v1 + v10) + 224) < p4);
    if (v11) {
      UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
        const i32 v13 = ((v12 * 32) + v1) + v10;
        const i32 v14 = ((v13 * p1) + v5) + v6;
        load_raw(q_in0[v12], g_in0 + v14);
      }
      UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
        unpack(r_in0, q_in0[v12]);
        UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
          accumulate_(Sum(), r_sum1[v15], to<f32>(r_in0[v15]));
        }
      }
    }
    if (!v11) {
      UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
        const i32 v16 = ((v12 * 32) + v1) + v10;
        const i32 v17 = ((v16 * p1) + v5) + v6;
        const bool v18 = v8 && (v16 < p4);
        load_raw_if(q_in0[v12], g_in0 + v17, v18);
      }
      UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
        const i32 v19 = ((v12 * 32) + v1) + v10;
        const bool v20 = v8 && (v19 < p4);
        if (v20) {
          unpack(r_in0, q_in0[v12]);
          UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
            accumulate_(Sum(), r_sum1[v15], to<f32>(r_in0[v15]));
          }
        }
      }
    }
    if ((v9 % 8) == 7) {
      UNROLL for (i32 v21 = 0; v21 < 8; ++v21) {
        r_sum1_all[v21] = merge_(Sum(), r_sum1_all[v21], r_sum1[v21]);
      }
      reset<Sum>(r_sum1);
    }
  }
  UNROLL for (i32 v22 = 0; v22 < 8; ++v22) {
    r_sum1[v22] = merge_(Sum(), r_sum1[v22], r_sum1_all[v22]);
  }
  reduce_rows<Sum, 32, 8>(r_sum1, s_sum0);
  const bool v23 = v1 == 0;
  if (v23) store_partials<8>(g_partial0 + ((((v3 * p5) * 64) + v5) + v6), &r_sum1[0]);
  const bool v24 = last_block(g_counters + v2, p3, (u32*)s_last);
  if (v24) {
    reset<Sum>(r_sum1);
    for (i32 v25 = 0; v25 < p6; ++v25) {
      reset<Sum>(r_partial0);
      const i32 v26 = v25 * 4;
      UNROLL for (i32 v27 = 0; v27 < 4; ++v27) {
        const i32 v28 = ((v26 + v27) * 32) + v1;
        if (v28 < p3) load_partials<8>(&r_partial0[v27 * 8], g_partial0 + ((((v28 * p5) * 64) + v5) + v6));
      }
      UNROLL for (i32 v27 = 0; v27 < 4; ++v27) {
        UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
          r_sum1[v15] = merge_(Sum(), r_sum1[v15], r_partial0[(v27 * 8) + v15]);
        }
      }
    }
    reduce_rows<Sum, 32, 8>(r_sum1, s_sum0);
    UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
      const bf16 v29 = to<bf16>(r_sum1[v15]);
      r_v2[v15] = v29;
    }
    UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
      r_out0[v15] = r_v2[v15];
    }
    store_if(g_out0 + v7, r_out0, v23 && v8);
  }
}
